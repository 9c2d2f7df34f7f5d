import asyncio
from collections.abc import AsyncIterator

import pytest
from bitts.kube import errors
from bitts.volumes.secrets import SecretRef
from csi_provisioner import intents
from csi_provisioner.intents import Journal, StoreUnusableError
from csi_provisioner.model import ClaimRef, Draft
from csi_provisioner.topology import Requirement
from hypothesis import given, settings
from hypothesis import strategies as st
from support import claims, waiting


class Slate:
    """A store in memory that can be slow, broken, or unusable."""

    def __init__(self, *, limit: int = 1 << 20) -> None:
        self.interval = 0.0
        self.limit = limit
        self.written: list[bytes] = []
        self.faults: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()

    async def read(self) -> bytes:
        if self.faults:
            raise self.faults.pop(0)
        return self.written[-1] if self.written else b""

    async def write(self, data: bytes) -> None:
        await self.open.wait()
        if self.faults:
            raise self.faults.pop(0)
        self.written.append(data)

    def uids(self) -> list[str]:
        """The claims in what was written last."""
        return [one.claim.uid for one in intents.decode(self.written[-1])]


def draft(uid: str) -> Draft:
    return claims.draft(claim=ClaimRef("team", uid, uid), volume_name=f"pvc-{uid}")


@pytest.fixture
async def slate() -> Slate:
    return Slate()


@pytest.fixture
async def journal(slate: Slate) -> AsyncIterator[Journal]:
    made = Journal(slate, quiet=0.02)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()


async def test_a_note_is_durable_when_it_returns(journal: Journal, slate: Slate) -> None:
    await journal.note(draft("a"))
    assert slate.uids() == ["a"]
    assert journal.depth == 1


async def test_noting_the_same_again_costs_nothing(journal: Journal, slate: Slate) -> None:
    await journal.note(draft("a"))
    await journal.note(draft("a"))
    assert journal.figures.commits == 1
    await journal.note(claims.draft(claim=ClaimRef("team", "a", "a"), required_bytes=7))
    assert journal.figures.commits == 2
    assert slate.uids() == ["a"]


async def test_a_burst_shares_commits(journal: Journal, slate: Slate) -> None:
    slate.open.clear()
    notes = [asyncio.create_task(journal.note(draft(str(number)))) for number in range(100)]
    await asyncio.sleep(0)
    slate.open.set()
    await asyncio.gather(*notes)
    assert journal.figures.commits <= 2
    assert len(slate.uids()) == 100


async def test_a_note_that_comes_during_a_commit_goes_with_the_next(
    journal: Journal, slate: Slate
) -> None:
    slate.open.clear()
    first = asyncio.create_task(journal.note(draft("a")))
    await waiting.until(lambda: journal._writing.locked(), "the first commit")
    second = asyncio.create_task(journal.note(draft("b")))
    await asyncio.sleep(0)
    assert not second.done()
    slate.open.set()
    await asyncio.gather(first, second)
    assert slate.uids() == ["a", "b"]


async def test_what_is_done_leaves_with_the_next_commit(journal: Journal, slate: Slate) -> None:
    await journal.note(draft("a"))
    journal.clear("a")
    await journal.note(draft("b"))
    assert slate.uids() == ["b"]
    assert journal.figures.commits == 2


async def test_what_is_done_leaves_in_a_quiet_moment_too(journal: Journal, slate: Slate) -> None:
    await journal.note(draft("a"))
    journal.clear("a")
    journal.clear("unknown")
    await waiting.until(lambda: slate.uids() == [], "an empty journal")
    assert journal.figures.commits == 2


async def test_closing_tells_the_next_process_what_is_open(slate: Slate) -> None:
    journal = Journal(slate)
    task = asyncio.create_task(journal.run())
    await asyncio.gather(journal.note(draft("a")), journal.note(draft("b")))
    journal.clear("a")
    await journal.close()
    await journal.close()
    task.cancel()
    successor = Journal(slate)
    assert [one.claim.uid for one in await successor.open()] == ["b"]
    assert successor.depth == 1


async def test_a_failed_commit_fails_its_notes_and_is_made_up_for(
    journal: Journal, slate: Slate
) -> None:
    slate.faults = [errors.ServerError("down", status=500)]
    with pytest.raises(errors.ServerError):
        await journal.note(draft("a"))
    assert journal.figures.failures == 1
    await journal.note(draft("a"))
    assert slate.uids() == ["a"]


async def test_an_unusable_store_does_not_stop_the_work(journal: Journal, slate: Slate) -> None:
    slate.faults = [StoreUnusableError("forbidden"), StoreUnusableError("forbidden")]
    await journal.note(draft("a"))
    await journal.note(draft("b"))
    assert journal.figures.unprotected == 2
    assert slate.written == []
    journal._sick_until = 0.0  # as if the pause were over
    slate.faults.clear()
    await journal.note(draft("c"))
    assert slate.uids() == ["a", "b", "c"]


async def test_an_unusable_store_is_no_reason_not_to_start(slate: Slate) -> None:
    slate.faults = [StoreUnusableError("forbidden")]
    assert await Journal(slate).open() == []


async def test_entries_that_cannot_be_read_are_given_up(slate: Slate) -> None:
    slate.written = [b'{"no": "list"}']
    assert await Journal(slate).open() == []


async def test_a_full_store_lets_the_newest_go_on_unprotected() -> None:
    slate = Slate(limit=2 * len(intents.encode(draft("a"))) + 10)
    journal = Journal(slate)
    task = asyncio.create_task(journal.run())
    await asyncio.gather(*(journal.note(draft(uid)) for uid in "abc"))
    task.cancel()
    assert slate.uids() == ["a", "b"]
    assert journal.figures.unprotected == 1


async def test_a_cancelled_note_disturbs_nobody(journal: Journal, slate: Slate) -> None:
    slate.open.clear()
    first = asyncio.create_task(journal.note(draft("a")))
    second = asyncio.create_task(journal.note(draft("b")))
    await asyncio.sleep(0)
    first.cancel()
    slate.open.set()
    await second
    assert "b" in slate.uids()


text = st.text(max_size=8)
terms = st.lists(st.tuples(text, text), max_size=3).map(tuple)
drafts = st.builds(
    Draft,
    claim=st.builds(ClaimRef, text, text, text, text),
    volume_name=text,
    class_name=text,
    class_uid=text,
    provisioner=text,
    required_bytes=st.integers(0, 2**63 - 1),
    access_modes=st.lists(text, max_size=3).map(tuple),
    mount_options=st.lists(text, max_size=3).map(tuple),
    parameters=st.dictionaries(text, text, max_size=3),
    secrets=st.dictionaries(text, st.builds(SecretRef, text, text), max_size=2),
    requirement=st.none()
    | st.builds(
        Requirement, st.lists(terms, max_size=2).map(tuple), st.lists(terms, max_size=2).map(tuple)
    ),
    mutable_parameters=st.none() | st.dictionaries(text, text, max_size=2),
)


@given(st.lists(drafts, max_size=3))
@settings(max_examples=100)
def test_every_draft_comes_back_as_it_was_written(written: list[Draft]) -> None:
    data = b"[" + b",".join(map(intents.encode, written)) + b"]"
    assert intents.decode(data) == written


def test_an_empty_store_holds_no_drafts() -> None:
    assert intents.decode(b"") == []
