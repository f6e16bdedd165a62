package metrics

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestWhatIsAskedForIsAskedAtEachScrape(t *testing.T) {
	r := NewRegistry("v1.2.3")
	asked := 0
	r.Ask("coatcheck_things", Gauge, "Things.", []string{"state"}, func(tell Tell) {
		asked++
		tell(float64(asked), "there")
		if asked > 1 {
			tell(7, "gone")
		}
	})
	first := scraped(r)
	expect.Contains(t, "the first scrape", first, `coatcheck_things{state="there"} 1`)
	if strings.Contains(first, "gone") {
		t.Errorf("the first scrape has a series of state gone, want none:\n%s", first)
	}
	expect.Contains(t, "the second scrape", scraped(r), `coatcheck_things{state="there"} 2`, `coatcheck_things{state="gone"} 7`)
	expect.Contains(t, "the third scrape", scraped(r), `coatcheck_build_info{go="go`, `version="v1.2.3"} 1`)
}
