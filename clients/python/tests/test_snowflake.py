"""The ids of a generator that is told what time it is."""

import collections
import unittest
from unittest import mock

from coatcheck.snowflake import Generator, layout_of

EPOCH = 1577836800000  # 2020
NEVER = EPOCH + (1 << 45)

without_spread = mock.patch("random.randrange", lambda _: 0)


def generator(layout, not_before=EPOCH, datacenter=0):
    return Generator(layout_of(layout), EPOCH, not_before, datacenter, 5)


def parts(layout, made):
    """Time, datacenter, worker id and sequence of an id."""
    bits, cut = layout_of(layout), []
    for width in (bits.sequence, bits.worker, bits.datacenter):
        cut.append(made & (1 << width) - 1)
        made >>= width
    return (made * bits.unit, *reversed(cut))


class Snowflake(unittest.TestCase):
    @without_spread
    def test_ids_are_those_of_the_protocols_page(self):
        ids = generator("41/10/12")
        self.assertEqual([ids.stamp(EPOCH + 1000, NEVER)[0] for _ in range(2)], [4194324480, 4194324481])

    @without_spread
    def test_an_id_has_its_parts_in_their_places(self):
        for layout, datacenter, time, want in (
            ("41/5/5/12", 3, 1000.9, (1000, 3, 5, 0)),
            ("32/10/21@s", 0, 5999, (5000, 0, 5, 0)),
            ("41/4/4/0", 9, 7, (7, 9, 5, 0)),
            ("45/8/10", 0, 1 << 42, (1 << 42, 0, 5, 0)),
        ):
            made, _ = generator(layout, datacenter=datacenter).stamp(EPOCH + time, NEVER)
            self.assertEqual(parts(layout, made), want, layout)

    @without_spread
    def test_a_full_sequence_waits_and_time_never_goes_back(self):
        ids = generator("41/10/2")
        made = [ids.stamp(EPOCH + 10.25, NEVER)[0] for _ in range(4)]
        self.assertEqual([parts("41/10/2", one)[3] for one in made], [0, 1, 2, 3])
        self.assertEqual(ids.stamp(EPOCH + 10.25, NEVER), (None, 0.75))
        self.assertEqual(ids.stamp(EPOCH + 7, NEVER), (None, 4))
        self.assertGreater(ids.stamp(EPOCH + 11, NEVER)[0], made[3])
        self.assertGreater(ids.stamp(EPOCH + 9, NEVER)[0], made[3])

    def test_the_whole_unit_of_an_id_lies_in_the_window(self):
        ids = generator("32/10/21@s", not_before=EPOCH + 1500)
        self.assertEqual(ids.used_until, EPOCH + 1500)
        self.assertEqual(ids.stamp(EPOCH + 1600, NEVER), (None, 400))
        self.assertIsNone(ids.stamp(EPOCH + 3999, EPOCH + 3999)[0])
        self.assertEqual(parts("32/10/21@s", ids.stamp(EPOCH + 3999, EPOCH + 4000)[0])[0], 3000)
        self.assertIsNone(ids.stamp(EPOCH + 4000, EPOCH + 4000)[0])
        self.assertEqual(ids.used_until, EPOCH + 4000)

    def test_a_layout_without_timestamps_stamps_nothing(self):
        ids = generator("20/10/12")
        self.assertIsNotNone(ids.stamp(EPOCH + (1 << 20) - 1, NEVER)[0])
        self.assertRaises(OverflowError, ids.stamp, EPOCH + (1 << 20), NEVER)

    def test_rare_ids_are_even_modulo_a_number_and_rise(self):
        ids, n = generator("41/10/12"), 4000
        made = [ids.stamp(EPOCH + at, NEVER)[0] for at in range(n)]
        self.assertEqual(made, sorted(set(made)))
        counts = collections.Counter(one % 8 for one in made)
        for rest in range(8):
            self.assertLess(abs(counts[rest] - n / 8), 6 * (n * 1 / 8 * 7 / 8) ** 0.5, counts)

    def test_what_is_no_layout_is_refused(self):
        for text in ("", "41/10", "41/10/12/1/1", "41/10/12@ms", "41/10/13", "19/10/12", "41/0/12", "a/b/c", "041/10/12"):
            self.assertRaises(ValueError, layout_of, text)
        self.assertRaises(ValueError, Generator, layout_of("41/2/12"), EPOCH, EPOCH, 0, 4)
        self.assertRaises(ValueError, Generator, layout_of("41/2/12"), EPOCH, EPOCH, 1, 0)


if __name__ == "__main__":
    unittest.main()
