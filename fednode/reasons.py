"""Why something that a peer sent was not accepted: one code each, for counting, reports and tests."""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """The code that a refusal is counted under; `meaning` says in a sentence what happened.

    Codes are stable: they stand in reports and logs. `docs/refusals.md` is made from this list.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        """A member whose value is `code`."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    # what arrived cannot be read
    MALFORMED = "malformed", "The message does not have the form that the protocol gives it."
    OVERSIZE = "oversize", "The message is longer than its kind may be."
    DAMAGED = "damaged", "The bytes do not match the digest that was sent or signed with them."
    UNEXPECTED = "unexpected", "The message is of another kind than the one that was asked for."
    BAD_REQUEST = "bad-request", "The node asks for something that the protocol does not allow."
    ANOTHER_REQUEST = "another-request", "The answer belongs to another request."
    NO_ANSWER = "no-answer", "No answer came, or only an error of the transport."

    # who sent it
    STRANGER = "stranger", "The sender is not an enrolled member, or was not asked."
    BAD_SIGNATURE = "bad-signature", "The signature is not the enrolled member's, or not the node's."
    UNSIGNED_REQUEST = "unsigned-request", "The node did not sign this request for this member."
    NOT_ENROLLED = "not-enrolled", "The list of members has other keys for this member than its own key folder."
    UNKNOWN_COHORT = "unknown-cohort", "The enrolment key did not sign this list of members."
    OLDER_COHORT = "older-cohort", "The member has seen a newer list of the same enroller, or another of this serial."
    EXPIRED_COHORT = "expired-cohort", "The list of members has expired."
    NOT_A_CLIENT = "not-a-client", "The request is for a client, and the member is not one."
    NOT_A_HOLDER = "not-a-holder", "The request is for a key holder, and the member is not one."
    ANOTHER_POINT = "another-point", "The answer names the Shamir point of another holder."

    # the task and its keys
    UNKNOWN_TASK = "unknown-task", "The member was never given this task."
    ANOTHER_TASK = "another-task", "The message belongs to another task."
    RETIRED = "retired", "The member closed this task for good."
    TASK_CAP = "task-cap", "The member has begun as many tasks as it allows."
    UNKNOWN_SCHEME = "unknown-scheme", "The member does not know this secure sum."
    SCHEME_FLOOR = "scheme-floor", "The member's own configuration does not allow this secure sum."
    BAD_PARAMETERS = "bad-parameters", "The parameters of the secure sum contradict each other."
    ANOTHER_COMMITTEE = "another-committee", "The secure sum is for another number of holders than are enrolled."
    LOW_THRESHOLD = "low-threshold", "Fewer holders could open the sum than the member requires."
    TOO_MANY = "too-many", "More updates than the secure sum or the list of members has room for."
    SECOND_KEY = "second-key", "The task has another joint key, list of members or secure sum already."
    BAD_KEY_PART = "bad-key-part", "A part of the joint key is missing, unsigned or not the one committed to."
    BAD_SHARE = "bad-share", "A share of the joint key is missing or does not open."
    ALREADY_JOINED = "already-joined", "The holder has its share of the joint key already."

    # the round
    ANOTHER_ROUND = "another-round", "The message belongs to another round."
    ANOTHER_SPEC = "another-spec", "The update answers another specification of the round."
    PAST_ROUND = "past-round", "The member has gone on to a later round."
    ROUND_CLOSED = "round-closed", "The round was opened or has failed."
    ROUND_CAP = "round-cap", "The member has taken part in as many rounds as it allows."
    SECOND_SPEC = "second-spec", "The member joined this round under another specification."
    NO_CONSENT = "no-consent", "The client was not asked, or did not agree, to take part in this round."
    NO_KEY = "no-key", "The holder gave no key for this round."

    # a client's own limits
    MIN_SURVIVORS = "min-survivors", "Fewer updates would be opened together than the member requires."
    UNIT_REFUSED = "unit-refused", "The round protects another unit than the member takes part for."
    NOISE_FLOOR = "noise-floor", "The sum would have less noise than the member requires."
    BUDGET = "budget", "Over all tasks, the round would cost the member's data more privacy than the member allows."
    STALENESS = "staleness", "The task allows older models than the member does."
    NO_ROOM = "no-room", "There is no room for one honest update in the sum, or none for the update in the store."
    NO_ROOM_YET = "no-room-yet", "There is no room in the store now; the client is asked again."
    MEMBER_STORAGE = "member-storage", "The member's disk or key folder failed."
    MEMBER_MEMORY = "member-memory", "The member has too little memory for the request."

    # the model and what is computed from it
    WRONG_SHAPE = "wrong-shape", "The arrays are not those of the model."
    ANOTHER_MODEL = "another-model", "The model is not the one that its digest names."
    STALE = "stale", "The update was computed from a model that is older than the task allows."
    EXPIRED_VERSION = "expired-version", "Newer versions have replaced the model that the message asks for."
    MISSING_CHUNKS = "missing-chunks", "The client does not hold all the parts of the model that the node relies on."
    UNKNOWN_CHUNK = "unknown-chunk", "A part came that the model does not have."
    COPY_MISSING = "copy-missing", "The node relies on a copy that the client no longer holds."
    NOT_OFFERED = "not-offered", "The client acknowledges a parcel that was never made."
    BAD_MODEL = "bad-model", "A value of the model is not finite or too large, or the model has too many arrays."

    # updates that arrive
    BAD_PAYLOAD = "bad-payload", "The sealed update cannot be added to the sum."
    BAD_BOXES = "bad-boxes", "The update does not have one box of the right size for each holder, with a check."
    BAD_BOX = "bad-box", "A box of the update does not open, as its key shows; the update was taken out of the sum."
    CROOKED_SHARE = "crooked-share", "A box holds a share that does not fit the client's others, as its key shows."
    FALSE_COMPLAINT = "false-complaint", "The holder struck a client whose box is good, or did not show the box's key."
    REPEATED = "repeated", "The same name comes twice, in a roster or in a round."
    REPEAT = "repeat", "The same update came again; it counts once."
    SECOND_UPDATE = "second-update", "The client sent two different updates in one round."
    LATE = "late", "The update came after the round had closed."

    # the opening
    BAD_BOX_KEY = "bad-box-key", "A holder's key of the round is missing, unsigned or of another round."
    BAD_CONFIRMATION = "bad-confirmation", "A holder confirmed another roster."
    ALREADY_CONFIRMED = "already-confirmed", "The holder confirmed another roster of this round."
    NOT_CONFIRMED = "not-confirmed", "Too few holders have confirmed this roster."
    ALREADY_OPENED = "already-opened", "The holder has opened this round."
    ANOTHER_LEDGER = (
        "another-ledger",
        "The node's ledger lacks a line that this holder has signed: it was cut or begun anew.",
    )
    BAD_ANSWER = "bad-answer", "The holder's answer does not have the form of an opening."
    WRONG_ANSWER = "wrong-answer", "The holder's answer contradicts those of the others."
