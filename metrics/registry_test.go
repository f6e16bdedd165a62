package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestWhatIsAskedForIsAskedAtEachScrape(t *testing.T) {
	r := NewRegistry("v1.2.3")
	asked := 0
	r.Ask("coatcheck_things", KindGauge, "Things.", []string{"state"}, func(tell Tell) {
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

// A scrape that is under way is for all who ask meanwhile.
func TestScrapesAtOnceAreOne(t *testing.T) {
	r := NewRegistry("v1")
	var asked atomic.Int32
	entered, goOn := make(chan struct{}), make(chan struct{})
	r.Ask("coatcheck_things", KindGauge, "Things.", nil, func(tell Tell) {
		if asked.Add(1) == 1 {
			close(entered)
			<-goOn
		}
		tell(float64(asked.Load()))
	})
	handler, texts := r.Handler(), make([]string, 50)
	scrape := func(i int) {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		texts[i] = answer.Body.String()
	}
	var scrapes, began sync.WaitGroup
	scrapes.Go(func() { scrape(0) })
	<-entered
	for i := 1; i < len(texts); i++ {
		began.Add(1)
		scrapes.Go(func() { began.Done(); scrape(i) })
	}
	began.Wait()
	close(goOn)
	scrapes.Wait()
	for i, text := range texts {
		expect.Contains(t, fmt.Sprintf("scrape %d", i), text, "coatcheck_things ")
	}
	if n := asked.Load(); int(n) == len(texts) {
		t.Errorf("%d scrapes at once asked %d times, want fewer", len(texts), n)
	}
}
