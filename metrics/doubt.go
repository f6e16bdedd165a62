package metrics

import (
	"time"

	"github.com/coatcheck/coatcheck/internal/doubt"
)

// InDoubt returns how many operations of the store are in doubt, now or a moment ago, and since
// when the oldest is: the zero time if there is none. known is false before [Store.Show], and while
// Redis has not answered for minutes.
func (s *Store) InDoubt() (operations int, since time.Time, known bool) {
	if s.doubts == nil {
		return 0, time.Time{}, false
	}
	found, known := s.doubts.Now()
	return found.Operations, found.Since, known
}

func (s *Store) showDoubts() {
	s.Ask("coatcheck_operations_in_doubt", KindGauge,
		"Operations in doubt in the store now, whether or not somebody asks for them again, by scope: a guarded route of this "+
			"process; other (of another process, or claimed over HTTP); unread (more than the 256 oldest, which are read).",
		[]string{"scope"}, func(tell Tell) {
			if f, known := s.doubts.Now(); known {
				for name, scope := range f.Scopes {
					tell(float64(scope.Operations), name)
				}
			}
		})
	s.Ask("coatcheck_operations_in_doubt_oldest_seconds", KindGauge,
		"How long the oldest operation of a scope is in doubt; 0 where none is.", []string{"scope"}, func(tell Tell) {
			if f, known := s.doubts.Now(); known {
				for name, scope := range f.Scopes {
					if name != doubt.Unread {
						tell(age(scope.Since), name)
					}
				}
			}
		})
}

func age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since).Seconds(), 0)
}
