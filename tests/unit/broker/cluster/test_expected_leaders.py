"""How long a Metadata response waits for a leader that is expected."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.cluster.expected_leaders import ExpectedLeaders
from odradek.model.clock import MonotonicMs

NAMES = st.sampled_from(["a", "b"])
EPOCHS = st.integers(-1, 4)
EVENTS = st.one_of(
    st.tuples(st.just("expect"), NAMES, st.integers(0, 1), EPOCHS),
    st.tuples(st.just("met"), NAMES, st.integers(0, 1), EPOCHS),
    st.tuples(st.just("drop"), NAMES, st.integers(0, 1), EPOCHS),
)


def expecting(epoch=5, hold_ms=300):
    leaders = ExpectedLeaders(hold_ms)
    leaders.expect("t", 0, epoch, MonotonicMs(1000))
    return leaders


def test_only_responses_about_the_topic_wait_and_no_longer_than_the_limit():
    leaders = expecting()

    assert leaders.until_ms(["t"], MonotonicMs(1000)) == 1300
    assert leaders.until_ms(None, MonotonicMs(1299)) == 1300
    assert leaders.until_ms(["other"], MonotonicMs(1000)) == 0
    assert leaders.until_ms(["t"], MonotonicMs(1300)) == 0
    assert not leaders, "what is over is dropped"


def test_only_responses_about_the_partition_wait():
    leaders = expecting()

    assert leaders.until_ms_of([("t", 1), ("other", 0)], MonotonicMs(1000)) == 0
    assert leaders.until_ms_of([("t", 1), ("t", 0)], MonotonicMs(1000)) == 1300
    assert leaders.until_ms_of([("t", 0)], MonotonicMs(1300)) == 0
    assert not leaders, "what is over is dropped"


def test_the_same_reason_does_not_extend_the_time_and_a_newer_epoch_does():
    leaders = expecting(epoch=5)
    leaders.expect("t", 0, 5, MonotonicMs(1200))
    assert leaders.until_ms(["t"], MonotonicMs(1200)) == 1300

    leaders.expect("t", 0, 6, MonotonicMs(1200))
    assert leaders.until_ms(["t"], MonotonicMs(1200)) == 1500


def test_an_older_epoch_in_the_metadata_does_not_end_it_and_the_expected_one_does():
    leaders = expecting(epoch=5)

    leaders.met("t", 0, 4)
    assert leaders
    leaders.met("t", 0, 5)
    assert not leaders


def test_without_a_limit_nothing_is_expected():
    assert not expecting(hold_ms=0)


@given(st.lists(EVENTS, max_size=30), st.integers(1, 500))
def test_whatever_happens_no_response_waits_longer_than_the_limit(events, hold_ms):
    leaders = ExpectedLeaders(hold_ms)
    for at, (what, topic, index, epoch) in enumerate(events):
        if what == "expect":
            leaders.expect(topic, index, epoch, MonotonicMs(at))
        elif what == "met":
            leaders.met(topic, index, epoch)
        else:
            leaders.drop(topic, index)

    assert leaders.until_ms(None, MonotonicMs(len(events))) <= len(events) + hold_ms
    assert leaders.until_ms(None, MonotonicMs(len(events) + hold_ms)) == 0
    assert not leaders
