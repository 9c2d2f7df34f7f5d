from csi_provisioner import memory
from csi_provisioner.memory import Memory, VolumeMemory
from csi_provisioner.model import ClaimRef, Past
from support import claims
from support.claims import CREATED, UID

DRAFT = claims.draft()
OTHER = claims.draft(claim=ClaimRef("team", "data", "other-uid"), volume_name="pvc-other")


def test_of_an_unknown_claim_nothing_is_remembered() -> None:
    assert Memory().past(UID) == Past()


def test_a_draft_is_kept_until_a_sure_answer() -> None:
    known = Memory()
    known.begin(DRAFT)
    assert known.past(UID) == Past(draft=DRAFT)
    known.answered(DRAFT, CREATED)
    assert known.past(UID) == Past(draft=DRAFT, created=CREATED)
    known.begin(DRAFT)
    assert known.past(UID).created == CREATED, "asking again must not lose the answer"
    known.end(UID)
    assert known.past(UID) == Past()


def test_a_finished_claim_is_remembered_as_such() -> None:
    known = Memory()
    known.begin(DRAFT)
    known.finish(UID)
    assert known.past(UID) == Past(finished=True)


def test_what_is_held_is_told_with_its_request() -> None:
    known = Memory()
    known.begin(DRAFT)
    known.hold(UID, 300.0, "class/")
    assert known.past(UID) == Past(held_until=300.0, held_for="class/")
    known.finish(UID)
    known.hold(UID, 400.0, "class/")
    assert known.past(UID) == Past(finished=True, held_until=400.0, held_for="class/")


def test_drafts_of_an_earlier_claim_of_the_name_are_found() -> None:
    known = Memory()
    known.begin(DRAFT)
    known.begin(OTHER)
    assert known.left_behind("team/data", UID) == ["other-uid"]
    assert known.left_behind("team/data", "") == [UID, "other-uid"]
    assert known.left_behind("team/more", "") == []
    assert sorted(one.volume_name for one in known.drafts()) == [DRAFT.volume_name, "pvc-other"]
    known.end(UID)
    known.end("other-uid")
    assert known.left_behind("team/data", "") == []
    assert list(known.drafts()) == []


def test_claims_that_await_nodes_are_woken_once() -> None:
    known = Memory()
    known.await_nodes("team/data")
    assert known.take_awaiting_nodes() == {"team/data"}
    assert known.take_awaiting_nodes() == set()


def test_memory_of_what_is_over_is_bounded() -> None:
    known = Memory()
    for number in range(memory._FINISHED + 5):
        known.finish(f"uid-{number}")
        known.hold(f"held-{number}", 1.0, "")
    assert not known.past("uid-0").finished
    assert known.past(f"uid-{memory._FINISHED}").finished
    assert known.past("held-0") == Past()
    assert known.past(f"held-{memory._HELD}").held_until == 1.0


def test_volumes_are_remembered_until_they_are_gone() -> None:
    known = VolumeMemory()
    assert (known.is_erased("pv"), known.told("pv")) == (False, "")
    known.erase("pv")
    known.tell("pv", "attached")
    assert (known.is_erased("pv"), known.told("pv")) == (True, "attached")
    known.forget("pv")
    assert (known.is_erased("pv"), known.told("pv")) == (False, "")
