//go:build check && linux

package resolvers

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/coatchecktest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// Whatever is killed and stopped, each key has one payment, each client its answer, and a minute
// later nothing is in doubt.
func TestDoubtsEndByThemselvesWhateverBreaks(t *testing.T) {
	beside(t)
	for _, of := range kinds {
		t.Run(of.name, func(t *testing.T) {
			beside(t)
			tr := startTrial(t, of, true)
			tr.run()
			left, f := tr.finish()
			expect.Equal(t, "operations in doubt a minute after the last fault", left, 0)
			tr.clean(f)
			if n := tr.resolutions["completed"] + tr.resolutions["not_begun"]; n == 0 {
				t.Error("no doubt was resolved: this run says nothing")
			}
			chaostest.ProveCase(t, evidence.Resolvers, tr.figures(left, f)...)
		})
	}
}

// clean fails the test with what a run had wrong.
func (tr *trial) clean(f findings) {
	tr.t.Helper()
	if f.twice+f.unanswered+f.wrong > 0 {
		tr.t.Errorf("%d keys with several payments, %d clients without an answer, %d wrong answers, want none:\n%s",
			f.twice, f.unanswered, f.wrong, strings.Join(f.samples, "\n"))
	}
	for code, n := range tr.told {
		tr.t.Logf("%6d × %s", n, code)
	}
}

// Without a resolver the same load leaves doubts, and nothing else is worse: no key has two
// payments, and no client is given another answer than its payment's.
func TestDoubtsStayWithoutAResolver(t *testing.T) {
	beside(t)
	some := kinds
	if *keys <= shortKeys {
		some = []kind{goKind}
	}
	for _, of := range some {
		t.Run(of.name, func(t *testing.T) {
			beside(t)
			tr := startTrial(t, of, false)
			left, f := 0, findings{}
			for range 5 { // of a few keys all may be lucky
				tr.run()
				if left, f = tr.finish(); left > 0 {
					break
				}
			}
			tr.clean(f)
			if left == 0 {
				t.Error("no operation is in doubt: the load breaks nothing")
			}
			chaostest.ProveCase(t, evidence.Resolvers, tr.figures(left, f)...)
		})
	}
}

// A resolver that only looks says that nothing has happened while an attempt is on its way, and the
// next one pays again. The trial finds that.
func TestResolverThatOnlyLooksIsFoundOut(t *testing.T) {
	beside(t)
	tr := startTrial(t, goKind, true, "WRONG="+looks)
	tr.faults = []string{workerKilled} // late payments are enough
	f := findings{}
	for range 10 { // one attempt has to pay between the question and the next attempt
		tr.run()
		if _, f = tr.finish(); f.twice > 0 {
			return
		}
	}
	t.Errorf("the trial finds nothing wrong: %+v", f)
}

// The statements of docs/effects.md for PostgreSQL and MySQL are a resolver, by the check that is
// there for everybody's.
func TestRecipesOfServersAreResolvers(t *testing.T) {
	t.Parallel()
	for kind, of := range map[sqltest.Kind]dialect{sqltest.PostgreSQL: {"PostgreSQL", numbered}, sqltest.MariaDB: {"MySQL", marked}} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := recipeOf(t, of)
			d := newDatabase(t, kind, r.table, paymentsTable)
			b := &bank{recipe: r, db: d.server.OpenDatabase(t, d.name)}
			coatchecktest.CheckResolver(t, b.resolverCase())
		})
	}
}
