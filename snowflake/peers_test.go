package snowflake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/snowflake"
)

// Faults that other generators have had, as far as they can happen here. Others of the kind have
// their test elsewhere: a padded decimal that grows past its width
// (TestPaddedRefusesWhatDoesNotFit), ids ahead of the clock that come again after a restart
// (TestRestartDoesNotRepeatIDsThatRanAhead), and a clock that stands still in suspend, of which the
// Worker knows (TestNoLeaseIsReportedWithTheWorkersReason).

func TestWorkerIDsOfMoreThan16BitsStayWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]snowflake.Parts{
			"39/20/4":    {Worker: 1<<20 - 1},
			"39/4/16/4":  {Datacenter: 15, Worker: 1<<16 - 1},
			"32/19/12@s": {Worker: 1<<18 + 1},
			"37/8/8/10":  {Datacenter: 255, Worker: 255},
			"41/1/21":    {Worker: 1},
		} {
			layout := snowflake.MustLayout(text)
			d := granted(1, time.Minute)
			d.lease.Worker, d.lease.Datacenter = want.Worker, want.Datacenter
			g := generator(t, d, like{Layout: layout})
			for i, id := range nextN(t, g, 10) {
				if got := layout.Decode(id, epoch); got.Worker != want.Worker || got.Datacenter != want.Datacenter || got.Sequence != int64(i) {
					t.Errorf("%s: %+v, want %+v", text, got, want)
				}
			}
		}
	})
}

// A sequence that is full goes on in the next unit, and never from 0 in its own.
func TestFullSequenceIsNotBegunAgainInTheSameUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"41/10/0", "41/10/1", "41/10/3", "31/10/3@s"} {
			g := generator(t, granted(1, time.Hour), like{Layout: snowflake.MustLayout(text)})
			var ids []snowflake.ID
			for i := range 200 {
				ids = append(ids, next(t, g))
				if i%20 == 0 {
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				}
			}
			ids = append(ids, nextN(t, g, 500)...)
			wantRising(t, ids)
		}
	})
}

// An id of Baidu's uid-generator, whose worker ids have 21 or 22 bits and whose epoch is a midnight
// of its time zone.
func TestIDOfUIDGeneratorIsTakenApart(t *testing.T) {
	shanghai := time.FixedZone("", 8*60*60)
	since := time.Date(2016, 9, 20, 0, 0, 0, 0, shanghai)
	for text, day := range map[string]string{"29/21/13@s": "2017-01-19", "28/22/13@s": "2016-11-19"} {
		got := snowflake.MustLayout(text).Decode(180363646902239241, since)
		if got.Time.In(shanghai).Format(time.DateOnly) != day || got.Worker != 4 || got.Sequence != 9 {
			t.Errorf("%s: got %+v, want %s, worker 4, sequence 9", text, got, day)
		}
	}
}
