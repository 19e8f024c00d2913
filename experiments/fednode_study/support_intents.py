"""The intents of the `support` set: for each the topics it borrows from and the requests, one a line."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intent:
    """What a customer may want: where the background comes from, and the ways to ask."""

    topics: tuple[str, ...]
    requests: tuple[str, ...]


def _intent(topics: str, requests: str) -> Intent:
    return Intent(tuple(topics.split()), tuple(line.strip() for line in requests.strip().splitlines()))


ORDERS = {
    "track_order": _intent(
        "delivery delivery service",
        """
        where is my {order}(| right now| at the moment|?)
        {want} track my {order}
        {you} (tell me|find out) where my {order} is
        is there a tracking (number|link|code) for (my|the) {order}
        has my {order} (been sent|shipped|left the warehouse) (yet|already|)
        what is the status of (my|the) {order}
        {you} check (on|the status of) (my|the) {order}
        the tracking (link|number) does not work, where is the {order} now
        any (news|update) (on|about) my {order}
        I have not heard anything about my {order}
        """,
    ),
    "delivery_time": _intent(
        "delivery delivery account",
        """
        how long (does|will) delivery (take|usually take)(| to the islands| abroad| for a {thing})
        when will my {order} (arrive|get here|be delivered|come)
        what are (your|the) delivery (times|options)
        do you deliver (on Sundays|at weekends|in the evening|abroad|to a pick-up point)
        how much (is|does) (express|next day|standard) (delivery|shipping)(| cost)
        how (fast|soon) can you (deliver|ship|send) (a|the) {thing}
        will (it|the {thing}) (be here|arrive) (before|by) (Friday|the weekend|Christmas|{day})
        if I order (today|now), when does it (come|arrive)
        can I (choose|pick) a (day|time|slot) for the delivery
        any (news|update) on when the {order} comes
        """,
    ),
    "missing_parcel": _intent(
        "delivery delivery service product",
        """
        my {order} (has not|hasn't|never|still hasn't) (arrived|turned up|come|been delivered)
        I (have not|haven't|never) received my {order}
        it says delivered but (there is nothing here|I have nothing|I got nothing)
        the {order} is (lost|missing|nowhere to be found)
        the (driver|courier) says it was handed over, but (I|we) did not get (it|any {order})
        I think my {order} (was stolen|got lost|went to the wrong house)
        {order} marked as delivered (but not here|and no sign of it)
        my neighbour does not have the {order} either
        half of my {order} is missing
        I have not heard anything about my {order} and it is (a week|days) late
        """,
    ),
    "damaged_item": _intent(
        "product product delivery service",
        """
        (my|the) {thing} (arrived|came|was delivered) {broken}
        (my|the) {thing} was {broken} when I opened the box
        I (got|received) a {broken} {thing}
        the {order} is {broken}, (what now|what should I do|can you send a new one)
        there is a (crack|dent|big scratch|hole) in the {thing} (you sent|I got|out of the box)
        {want} report a {broken} {thing}
        the glass of the {thing} was {broken} on arrival
        {you} replace a {thing} that (came|arrived) {broken}
        the courier (dropped|crushed) the {order} and it is {broken}
        the {thing} does not work, it came like that
        """,
    ),
    "wrong_item": _intent(
        "product product delivery",
        """
        I (got|received|was sent) the wrong (item|{thing}|size|colour)
        you sent me a {thing} (but|and) I ordered a {thing}
        this is not (what|the {thing}) I ordered
        the {thing} is the wrong (size|colour|model)
        wrong (item|product|colour|size) in (the|my) {order}
        there is somebody else's {thing} in my (box|parcel)
        my {order} has the wrong (things|items|{thing}) in it
        I asked for (black|size 42|the large one) and (got|you sent) (white|size 38|the small one)
        {you} swap the {thing}, it is not the one I (ordered|chose)
        the {thing} does not look like the one (I ordered|in the picture)
        """,
    ),
    "cancel_order": _intent(
        "delivery delivery billing account",
        """
        {want} cancel (my|the|this) {order}
        {you} cancel (my|the) {order}(| before it ships| from {day}| number {number})
        please stop (the|my) {order}, I (don't need it any more|changed my mind|found it cheaper)
        I ordered (by mistake|twice by accident|the wrong {thing}), (cancel it please|please do not send it)
        is it too late to cancel
        (don't|do not) (ship|send) (order {number}|my {order}|the {thing})
        I (no longer|don't) (need|want) the {thing} I ordered, it has not (shipped|been sent)
        how long do I have to cancel an order
        {want} call off order {number}
        I changed my mind about the {thing}
        """,
    ),
    "change_order": _intent(
        "delivery delivery product account",
        """
        {want} (change|edit|amend) (my|the) {order}
        {want} add (a|another) {thing} to (my|the) order
        {want} (remove|take) (a|the) {thing} (from|off) my order
        {you} change the (size|colour|quantity) (in|of) my {order}
        I ordered one {thing} but (need|want) two, can that be changed
        can I (swap|switch) the {thing} for (a|the) {thing} before it (ships|is sent)
        I picked the wrong (size|colour) when ordering, can I (change|correct) it
        please make it (two|three|the blue one|the larger one) instead
        is it too late to change (my order|the {thing})
        I changed my mind about the colour of the {thing}
        """,
    ),
    "change_address": _intent(
        "delivery delivery account",
        """
        {want} change (my|the) (delivery|shipping) address
        {you} send (it|my {order}) to (another|a different|my new|my work) address
        I (moved|am moving) (house|{day}), (please update|how do I change) (my|the) address
        the (delivery address|postcode|street|house number) on my {order} is wrong
        I (put|typed|gave) the wrong (address|postcode|house number)
        can the {order} go to (my office|a neighbour|a pick-up point|my new flat) instead
        {want} update the address (on|in|of) (my account|my {order})
        my {order} is going to my old address
        new address for (order {number}|my {plan}), please (change|update) it
        I gave the wrong details for the {order}
        """,
    ),
}

MONEY = {
    "return_item": _intent(
        "product product delivery billing",
        """
        {want} return (the|a|my) {thing}
        {want} send (the|a|my) {thing} back
        how (do|does) (I|one) get a return label(| for the {thing})
        what is (your|the) return policy(| for a {thing}|?)
        how (long|many days) do I have to return (the|a) {thing}
        (where|to which address) do I send (the|a) {thing} back
        the {thing} (does not fit|is too small|is not for me), I want to return it
        do I have to pay for (the return|sending it back|return shipping)
        can I (return|bring back) the {thing} (in a shop|without the box|without a receipt)
        I do not want the {thing}, it is not what I hoped for
        """,
    ),
    "request_refund": _intent(
        "product delivery billing service",
        """
        I want my {money} back
        {want} get a refund(| for the {thing}| for order {number}|)
        please refund (me|my {money}|the {thing}|order {number})
        {you} (give me|arrange) a refund for (the|my) {order}
        I (demand|expect|am asking for) (a|a full) refund
        can I (have|get) my {money} back (for|on) the {thing}
        I don't want a new {thing}, I want the {money} back
        am I (entitled to|able to get) a refund
        {you} pay me back {amount}
        I (am writing|need help|have a question) about a refund
        """,
    ),
    "refund_status": _intent(
        "billing billing product service",
        """
        where is my refund
        when (will|do) I (get|receive|see) my (refund|{money} back)
        I (have not|haven't|still haven't) (received|got) my (refund|{money} back)
        how long (does|do) (a refund|refunds) take
        has my refund been (sent|processed|approved)
        I returned the {thing} {day} (and|but) (no|there is no) refund (yet|so far)
        {you} check (the status of|on) my refund
        you (got|received) the {thing} back {day}, where is the {money}
        the refund of {amount} is not on my (account|{card})
        I (am writing|need help|have a question) about a refund
        """,
    ),
    "payment_declined": _intent(
        "billing account account",
        """
        my {card} (was|is|keeps being) (declined|rejected|refused)
        (the|my) payment (failed|does not go through|didn't work)
        why (was|is) my {card} (not accepted|declined|refused)
        I cannot pay (for the {thing}|with my {card}|at checkout)
        checkout (gives|shows) an error when I (pay|enter my {card})
        payment error (at checkout|{number}) (when buying|for) (the|a) {thing}
        {want} pay but (it|the payment) (fails|gets stuck)
        there is enough money on my {card} but it (is declined|fails)
        your site does not (take|accept) my {card}
        my {card} does not work (here|on your site|)
        """,
    ),
    "charged_twice": _intent(
        "billing billing service",
        """
        I (was|have been|got) charged (twice|two times|double)(| for the {thing}|)
        you (took|charged) {amount} twice
        there (are|is) two payments (of {amount}|for one {order}) on my (account|{card})
        why did I pay {amount} (instead of|and not) {amount}
        the amount on my {card} (is wrong|is too high|does not match my {order})
        there is a (charge|payment) I (don't recognise|did not make|know nothing about)
        you (overcharged me|took too much) for (the|my) {order}
        my (bill|invoice) is (wrong|too high)
        I (cancelled|returned) (it|the {thing}) and was still charged {amount}
        {you} explain (the|this) (charge|payment) of {amount}
        """,
    ),
    "invoice_copy": _intent(
        "billing billing account product",
        """
        {want} (get|have|download) (an invoice|a receipt|a copy of my invoice)
        {you} (send|email) me (the|an|my) (invoice|receipt|bill)(| for order {number}| for the {thing}|)
        I need (an invoice|a receipt) for (my taxes|my company|the warranty|order {number})
        where (can I find|are|do I download) my (invoices|receipts|bills)
        the invoice (has|shows) the wrong (company name|address|tax number), can I have a new one
        I (lost|never got) (the|my) (receipt|invoice)
        there was no (invoice|receipt) in the (box|parcel|email)
        my company needs a (proper|VAT) invoice for the {thing}
        can I get a bill (with|that has) my tax number
        my (bill|invoice) is wrong
        """,
    ),
    "payment_methods": _intent(
        "billing account product",
        """
        (what|which) (payment methods|ways to pay) (do you (accept|take)|are there)
        (do you take|can I pay (with|by)) (paypal|a gift card|bank transfer|cash on delivery|apple pay|visa|mastercard)
        {want} pay in (instalments|three parts|monthly parts)
        can I pay (later|on delivery|by invoice|in a shop)
        do you accept {card}s from abroad
        {want} pay for (the|a) {thing} with (two cards|a voucher and a card|a gift card)
        {want} (save|add) a (new|second) {card} (to|in) my account
        is it safe to pay (with|by) {card} on your site
        can I use a different {card} for (the|my) {order}
        does your site take my {card}
        """,
    ),
    "discount_code": _intent(
        "account product billing",
        """
        my (discount|voucher|promo|coupon) code (does not work|is not accepted|says invalid|has expired)
        {want} use (a|my|the) (voucher|discount code|coupon|gift card)
        where do I (enter|put) (a|the|my) (promo|voucher|discount) code
        do you have (a|any) (discount|student discount|voucher|offer) (for|on) (the|a) {thing}
        I forgot to (use|enter) my (voucher|code), can (I|you) still (use|apply) it
        the {thing} was (cheaper|on sale) {day}, can I still get (that|the lower) price
        is there a (sale|discount) (coming|soon|on the {thing})
        the code from (the newsletter|your email) takes nothing off
        (code|voucher) {number} not (applied|taken off) at checkout
        can I use two (codes|vouchers) (together|on one order)
        """,
    ),
}

ACCOUNT = {
    "login_problem": _intent(
        "account account service",
        """
        I (can't|cannot|am unable to) (log in|sign in|get into my account)
        I forgot my (password|login|user name)
        {want} (reset|change) my password
        the (reset|password) (email|link) (never comes|does not arrive|has expired)
        my account (is|has been) (locked|blocked|suspended)
        it says (wrong password|unknown user|account locked)
        the (code|text message) to (log in|sign in) does not (come|work)
        {you} (unlock|open) my account (again|)
        I am locked out (of my account|since {day})
        the app (throws|logs) me out (all the time|every time)
        I have a problem with my account
        """,
    ),
    "update_details": _intent(
        "account account delivery",
        """
        {want} (change|update) (my|the) (email|email address|phone number|name|bank details) (on|in|of) my account
        I have a new (phone number|email address|surname|bank account)
        my (name|email|phone number|date of birth) is (spelled|saved|entered) wrong
        {you} (change|correct) (my|the) (email|phone number|surname) (for|in) my account
        my (email|phone number) has changed
        I no longer (use|have) the (email|number) in my account
        where can I (edit|change) my (profile|personal details|contact details)
        {want} stop (your newsletters|marketing emails), my email is in the settings
        update (phone|email) to the new one please
        I gave the wrong details in my account
        """,
    ),
    "delete_account": _intent(
        "account account service",
        """
        {want} (delete|close|remove) my account
        {you} (delete|close|erase) my (account|profile)(| for good|)
        I want all my (data|personal data|details) (deleted|removed|erased)
        please remove me from your (system|database|records)
        I don't want (an account|to be a customer) (here|with you) any more
        how (do|can) I get rid of my (account|profile)
        {want} (request|ask for) the deletion of my data
        what happens to my (orders|data|points) if I (close|delete) my account
        I made two accounts, (please delete|close) one
        {want} (leave|cancel everything)
        """,
    ),
    "cancel_plan": _intent(
        "account billing billing service",
        """
        {want} cancel (my|the) {plan}
        {you} (stop|end|cancel) my {plan}(| at once| at the end of the month|)
        I (no longer|don't) (want|need|use) (the|my) {plan}
        how do I (unsubscribe|end the trial|stop the renewal)
        (turn|switch) off (the|my) (auto renewal|automatic renewal)
        my {plan} (renewed|was extended) (and|but) I did not want (it|that)
        (do not|don't) (renew|extend) my {plan}
        what is the notice period (of|for) (the|my) {plan}
        the free trial ends {day}, I (don't want to|won't) continue
        {want} (leave|cancel everything)
        """,
    ),
    "change_plan": _intent(
        "account billing account",
        """
        {want} (change|switch|upgrade|downgrade) my {plan}
        {want} (move|switch) (to|from) (the yearly|the monthly|a cheaper|a bigger) plan
        {you} (pause|put on hold|skip) my {plan} (for a month|until {day}|while I am away)
        what is the difference between the (basic|standard) and the premium plan
        how much is the (yearly|premium|family) plan
        can I (add|share with) (my family|a second person) (to|on) my {plan}
        I want (a box every two months|fewer boxes|the larger box) instead
        if I (upgrade|switch) now, when (do I pay|does it start)
        can I get my {plan} (monthly instead of yearly|in a smaller size)
        I have a question about my {plan}
        """,
    ),
}

SERVICE = {
    "warranty": _intent(
        "product product service",
        """
        is my {thing} (still|) (under|covered by) (warranty|guarantee)
        {want} make a warranty claim(| for the {thing}|)
        how long is the (warranty|guarantee) (on|for) (the|a) {thing}
        the {thing} (stopped working|broke|died) after (a year|two months|six months)
        my {thing} (broke|stopped working) (by itself|after a few weeks), is that covered
        {you} (repair|fix) (the|my) {thing}
        where (do|can) I (send|bring) the {thing} for (repair|a repair)
        do you have (spare parts|a new battery|a replacement part) for the {thing}
        the (battery|zip|handle|motor) of (the|my) {thing} (is dead|broke|no longer works)
        the {thing} does not work any more
        """,
    ),
    "product_stock": _intent(
        "product account delivery",
        """
        (is|are) the {thing} (in stock|available)(| in black| in size 42| in the shop|)
        when (will|do) you have the {thing} (again|back|in stock)
        do you (sell|have|stock) (a|the) {thing}(| in blue| in a larger size|)
        the {thing} is (sold out|out of stock), will it come back
        {you} tell me when the {thing} is (back|available)
        what (size|material|weight|colour) is the {thing}
        does the {thing} (come with|include|need) (a cable|batteries|a plug)
        how many {thing} do you have left
        which {thing} (do you recommend|is better|is the quietest)
        I cannot find the {thing} on your site
        """,
    ),
    "complaint": _intent(
        "service service delivery product billing",
        """
        I (want|wish|would like) to (make|file) a complaint
        this is (the worst service I have had|unacceptable|a disgrace|a joke)
        I am (very|really|so) (unhappy|disappointed|angry|annoyed) (with|about) (your service|the {order}|the driver)
        your (driver|agent|colleague) was (rude|unfriendly|no help)
        where (do|can) I (complain|send a complaint)
        I (will never|won't) (order|buy) (here|from you) again
        (terrible|awful|poor) (service|experience), I expected (more|better)
        how can (a company|you) treat (customers|people) like this
        I am going to (leave|write) a bad review
        I have been waiting for (weeks|an answer for days) and I have had enough
        """,
    ),
    "speak_to_human": _intent(
        "service service billing delivery account",
        """
        {want} (speak|talk) to (a person|a human|someone|an agent|a real person)
        (get|give|connect) me (a human|someone|an agent|a supervisor)
        {you} (call me|put me through|connect me)(| to a person| to an agent|)
        is there a (phone number|hotline|number) I can (call|ring)
        I don't want to (talk|write) to a (bot|machine|robot)
        (human|agent|operator|real person) please
        {want} (speak|talk) to (your|the) (manager|supervisor|billing team)
        when can I (reach|call) (you|someone|customer service)
        nobody understands me here, let me talk to (someone|a colleague)
        I have been waiting for (an answer|someone) for (days|an hour)
        """,
    ),
}

INTENTS: dict[str, Intent] = {**ORDERS, **MONEY, **ACCOUNT, **SERVICE}
