package cli

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestLimitTakesAndRefuses(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		tell(t, at, []told{
			{"limit sms --rate 3/d", done, "2\n"},
			{"limit sms --rate 3/d --cost 2", done, "0\n"},
			{"limit sms --rate 3/d", tryLater, "there is room in"},
			{"limit sms --rate 3/d --cost -1", done, "1\n"},
			{"limit sms --rate 3/d --cost 0", done, "1\n"},
			{"limit sms --rate 3/24h --burst 3 --cost 2", tryLater, "1 remain"},
			{"limit sms --reset", done, ""},
			{"limit sms --reset", done, ""},
			{"limit sms --rate 3/d --burst 10", done, "9\n"},
		})
	})
	expect.Contains(t, "limit --json", execute(t, nil, "limit", "k", "--json", "--rate", "5/s", "--server", serve(t).banner.URL).exits(done).stdout, `{"allowed":true,"remaining":4,"reset_ms":`)
}

func TestWhatIsNoLimitIsWrongUsage(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		var story []told
		for args, says := range map[string]string{
			"limit": "one limit", "limit a b": "one limit", "limit a/b": "name", "limit a": "--rate", "limit a --rate 5": "rate", "limit a --rate 5/": "rate", "limit a --rate /s": "rate",
			"limit a --rate 0/s": "rate", "limit a --rate 1000001/s": "rate", "limit a --rate 1/0s": "rate", "limit a --rate 1/367d": "rate", "limit a --rate 1/9000h": "rate",
			"limit a --rate 5/s --cost 6": "cost", "limit a --rate 5/s --cost x": "cost", "limit a --rate 5/s --burst 0": "burst",
		} {
			story = append(story, told{args, usage, says})
		}
		tell(t, at, story)
	})
}
