"""The words of the `support` set: what customers of a shop write, as a small grammar in plain text.

`(a|b|)` is a choice, an empty branch leaves the words out, and `{name}` is one of `WORDS`. Each intent lists its
requests, one a line, and the topics of the background sentences that may stand beside them. Topics are shared on
purpose: a request for a refund and a complaint both tell of the same late parcel, so no single word gives an intent
away. Some requests stand word for word under two intents, as they do in a real inbox: nobody could tell them apart.
"""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


WORDS: dict[str, tuple[str, ...]] = {
    name: tuple(line.split(" / "))
    for name, line in {
        "order": "order / parcel / package / delivery / {thing} / purchase",
        "thing": "headphones / kettle / jacket / desk lamp / coffee machine / trainers / phone case / keyboard"
        " / backpack / vacuum cleaner / rice cooker / office chair / monitor / blender / winter boots / speaker"
        " / watch / tent",
        "day": "Monday / Tuesday / Wednesday / Thursday / Friday / Saturday / yesterday / last week / two weeks ago"
        " / on the 3rd / on the 14th / this morning / ten days ago / a month ago",
        "number": "4471 / 90233 / 118-20 / A5582 / 77310 / 2049-B / 63018 / X912 / 30057 / 8861 / C4410 / 15-702",
        "amount": "12.99 / 45 / 79.90 / 120 / 19.95 / 240 / 33.50 / 8 pounds / 60 euros / 149",
        "plan": "subscription / membership / monthly plan / premium plan / plan / monthly box",
        "card": "card / credit card / debit card / visa / mastercard / bank card",
        "want": "I want to / I'd like to / I would like to / I need to / can I / could I / is it possible to / how do I"
        " / how can I / please let me / help me / I am trying to / what do I do to",
        "you": "can you / could you / would you / please / can someone / will you / I need you to"
        " / is there a way you can",
        "money": "money / payment / {amount} / money for the {thing} / full amount",
        "broken": "broken / damaged / cracked / smashed / scratched / dented / in pieces",
    }.items()
}

OPENERS = _lines("""
    hi
    hello
    hello there
    good morning
    good afternoon
    hey
    dear team
    hi team
    quick question
    sorry to bother you
    hope you are well
""")

CLOSERS = _lines("""
    thanks
    thank you
    many thanks
    thanks in advance
    please help
    please advise
    any help is appreciated
    let me know
    waiting for your answer
    cheers
    I look forward to your reply
    my order number is {number}
    the reference is {number}
    please get back to me (soon|today|as soon as you can)
""")

BACKGROUND: dict[str, tuple[str, ...]] = {
    "delivery": _lines("""
        my {order} was (supposed|meant|due) to (come|arrive) {day}
        I ordered (a|the) {thing} {day}
        the tracking page has not changed since {day}
        I placed order {number} {day}
        the (driver|courier) left a card {day}
        I (paid extra for|chose) express delivery
        the order went out {day}
        nobody was at home when the (driver|courier) came
    """),
    "product": _lines("""
        I (bought|got) the {thing} {day}
        the {thing} (came|arrived|was delivered) {day}
        I have (only used|had) the {thing} (twice|once|for a week|since {day})
        the {thing} does not (work|fit|switch on|look like the picture)
        the {thing} was a (present|gift)
        the box was (open|wet|{broken}) when it came
        I still have the (box|receipt|packaging)
    """),
    "billing": _lines("""
        I paid (with|by) {card} {day}
        my bank (shows|says) a payment of {amount}
        {amount} (has left|was taken from) my account {day}
        the bill for {day} says {amount}
        I checked my bank statement {day}
        the shop says the payment is pending
        I sent the {thing} back {day}
    """),
    "account": _lines("""
        I have been a customer (for years|since {day})
        I cannot find it (in my account|on the website|in the app)
        I looked (in the settings|on the account page|in the app)
        I tried (twice|three times|again) {day}
        the (app|website|page) keeps (loading|giving an error)
        I changed my (phone|email|bank) {day}
        I use the same email as always
    """),
    "service": _lines("""
        I have (already written|called|emailed) (twice|three times|{day})
        nobody (answers|has got back to me|could help me)
        the chat bot does not understand me
        I waited (an hour|forty minutes) on the phone {day}
        I was promised a call back {day}
        the last agent (said|told me) it would be sorted {day}
        this is the (second|third) time
    """),
}
