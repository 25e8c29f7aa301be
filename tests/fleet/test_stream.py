"""Records that come one by one are filed once; those in parts when all are there, or when no more can come."""

import pytest
from vmsonar_archive.format.lines import BadLine

from tests.fleet.messages import Message, as_somebody_else, messages
from tests.fleet.place import Machines, Vm, assert_same, sums
from vmsonar.config.quantities import ByteSize
from vmsonar.config.shipping import Kept
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import Fleet
from vmsonar.fleet.stream import Filed, Stream, is_complete, read_headers


def counts(filed: Filed) -> tuple[int, int]:
    return filed.records, filed.repeats


def send(stream: Stream, some: list[Message]) -> None:
    for message in some:
        stream.add(*message)


def test_each_record_once_in_any_batches(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(100)
    vm.stop()
    stream, sent = Stream(intake), messages(vm.root)
    send(stream, sent[:30])
    assert counts(stream.flush()) == (30, 0)
    send(stream, sent[20:70] + sent[40:60])
    assert counts(stream.flush()) == (40, 30)
    send(Stream(intake), sent)  # is killed before it files anything
    send(stream, sent)
    assert counts(stream.flush()) == (31, 70)
    assert_same(fleet, [vm])


def test_parts_become_one_record(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(10, processes=100)
    vm.stop()
    sent = messages(vm.root, limit=6000)
    assert len(sent) > 30
    stream = Stream(intake)
    for kind, headers, line in sent[:-1]:
        stream.add(kind, headers, line, "here")
    filed = stream.flush()
    assert (counts(filed), filed.held) == ((10, 0), {"here"})
    send(stream, sent[-1:])
    filed = stream.flush()
    assert (counts(filed), filed.held) == ((1, 0), set())
    assert_same(fleet, [vm])


def test_a_part_that_never_comes_does_not_hold_up_the_rest(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    """Too large even in parts: its sender has counted it as undeliverable."""
    vm.record(3, processes=100)
    vm.stop()
    sent = messages(vm.root, limit=6000)
    lost = next(number for number, (_, headers, _) in enumerate(sent) if headers.part)
    stream = Stream(intake)
    send(stream, sent[:lost] + sent[lost + 1 :])
    assert not stream.flush().held
    assert sums(fleet.origins())[vm.archive]["samples"] == 3
    last = sent[-1]
    stream.add(last[0], last[1], last[2])
    assert stream.flush().held
    assert not stream.flush().held


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["1/1"], True),
        (["1/2"], False),
        (["1/2", "2/2"], True),
        (["1/2", "2/2.1/2"], False),
        (["1/2", "2/2.1/2", "2/2.2/2"], True),
        (["1/2", "2/3"], False),
        (["1/99999"], False),
    ],
)
def test_when_all_parts_are_there(names: list[str], whole: bool) -> None:
    assert is_complete(dict.fromkeys(names)) is whole


def test_what_is_none_of_ours_is_refused(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(2)
    vm.stop()
    (kind, headers, line), *_ = messages(vm.root)
    stream = Stream(intake)
    given = {name: str(getattr(headers, name)) for name in ("archive", "run", "boot", "seq", "identity")}
    for change in (
        {"archive": "../../etc"},
        {"archive": "00000000-0000-0000-0000-000000000000"},
        {"seq": "7"},
        {"run": "a/b"},
        {"part": "1"},
        {"identity": ""},
        {"identity": "e30="},
        {"head": "x"},
    ):
        with pytest.raises(BadLine):
            stream.add(kind, read_headers(given | change), line)
    with pytest.raises(BadLine):
        stream.add(kind, headers, line.replace(b'"cpus":2', b'"cpus":3'))
    with pytest.raises(BadLine):
        stream.add(kind, headers, b"")
    assert counts(stream.flush()) == (0, 0)
    assert fleet.ids() == []


def test_who_sends_under_anothers_id_harms_nobody(machines: Machines, fleet: Fleet, intake: Intake) -> None:
    made = [machines(), machines()]
    for vm in made:
        vm.record(10)
        vm.stop()
    sent = [messages(vm.root) for vm in made]
    stream = Stream(intake)
    send(stream, sent[0][:5])
    assert not stream.flush().refused
    send(stream, [as_somebody_else(sent[0][5]), *sent[0][5:], *sent[1]])
    filed = stream.flush()
    assert [receipt.reason for receipt in filed.refused] == ["other_machine"]
    assert (counts(filed), filed.held, filed.failure) == ((17, 0), set(), None)
    assert_same(fleet, made)
    (kept,) = fleet.refused.glob("*.jsonl")
    assert kept.read_bytes() == sent[0][5][2] + b"\n"


def test_an_archive_that_cannot_be_opened_holds_up_no_other(
    machines: Machines, fleet: Fleet, intake: Intake
) -> None:
    made = [machines() for _ in range(3)]
    stream = Stream(intake)
    for vm in made:
        vm.record(10)
        vm.stop()
        for message in messages(vm.root):
            stream.add(*message, vm.root.name)
    broken, shut, _ = (fleet.archive(vm.archive) for vm in made)
    broken.mkdir(parents=True)
    (broken / "archive.json").write_bytes(b"{")
    shut.write_bytes(b"")
    filed = stream.flush()
    assert [receipt.reason for receipt in filed.refused] == ["broken_archive"]
    assert (counts(filed), filed.held) == ((11, 0), {"vm1"})
    assert isinstance(filed.failure, OSError)
    shut.unlink()
    assert counts(stream.flush()) == (11, 0)


def test_what_cannot_be_set_aside_is_not_passed(vm: Vm, fleet: Fleet) -> None:
    vm.record(10)
    vm.stop()
    stream = Stream(Intake(fleet, refused=Kept(max_bytes=ByteSize(100))))
    for message in messages(vm.root):
        stream.add(*message, "here")
    fleet.archive(vm.archive).mkdir(parents=True)
    (fleet.archive(vm.archive) / "archive.json").write_bytes(b"{")
    filed = stream.flush()
    assert (filed.refused, filed.held) == ([], {"here"})
    assert str(filed.failure).endswith("refused is full")
