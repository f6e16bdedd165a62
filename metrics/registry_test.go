package metrics

import (
	"strings"
	"testing"
)

func TestUnitsStandAtTheEndOfNames(t *testing.T) {
	for name, want := range map[string]string{
		"coatcheck_redis_pool_wait_seconds_total": "seconds", "coatcheck_lock_hold_seconds": "seconds", "process_resident_memory_bytes": "bytes",
		"coatcheck_lock_held": "", "coatcheck_ids_total": "",
	} {
		if got := (Metric{Name: name}).Unit(); got != want {
			t.Errorf("%s is in %q, want %q", name, got, want)
		}
	}
}

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
	if text := scraped(r); !strings.Contains(text, `coatcheck_things{state="there"} 1`) || strings.Contains(text, "gone") {
		t.Error(text)
	}
	if text := scraped(r); !strings.Contains(text, `coatcheck_things{state="there"} 2`) || !strings.Contains(text, `coatcheck_things{state="gone"} 7`) {
		t.Error(text)
	}
	if text := scraped(r); !strings.Contains(text, `coatcheck_build_info{go="go`) || !strings.Contains(text, `version="v1.2.3"} 1`) {
		t.Error(text)
	}
}
