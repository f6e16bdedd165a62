//go:build check

package locks

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// granted and ended are operations of small histories.
func granted(client int, call, back, fence int64) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Call: call, Return: back, Input: deed{client: client, permits: 1, fence: fence}}
}

func ended(client int, call, back int64) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Call: call, Return: back, Input: deed{client: client, end: true, permits: 1}}
}

// reader makes an operation one of a reader.
func reader(o porcupine.Operation) porcupine.Operation {
	d := o.Input.(deed)
	d.shared = true
	o.Input = d
	return o
}

// both makes an operation one of two permits.
func both(o porcupine.Operation) porcupine.Operation {
	d := o.Input.(deed)
	d.permits = 2
	o.Input = d
	return o
}

// Each model explains histories that are right, and none of those with a fault put in.
func TestEachModelRefusesItsBrokenHistories(t *testing.T) {
	type history = []porcupine.Operation
	for _, row := range []struct {
		name  string
		model porcupine.Model
		want  porcupine.CheckResult
		history
	}{
		{"mutex: one after the other", mutexModel, porcupine.Ok, history{granted(0, 0, 1, 0), ended(0, 5, 6), granted(1, 2, 7, 0), ended(1, 8, 9)}},
		{"mutex: granted while it was being given back", mutexModel, porcupine.Ok, history{granted(0, 0, 1, 0), ended(0, 5, 9), granted(1, 2, 6, 0), ended(1, 8, 9)}},
		{"mutex: a killed holder", mutexModel, porcupine.Ok, history{granted(0, 0, 1, 0), ended(0, 3, never), granted(1, 2, 6, 0), ended(1, 8, 9)}},
		{"mutex: two at once", mutexModel, porcupine.Illegal, history{granted(0, 0, 1, 0), ended(0, 5, 6), granted(1, 2, 4, 0), ended(1, 8, 9)}},
		{"mutex: a killed holder who had looked later", mutexModel, porcupine.Illegal, history{granted(0, 0, 1, 0), ended(0, 7, never), granted(1, 2, 6, 0), ended(1, 8, 9)}},
		{"mutex: given back by another", mutexModel, porcupine.Illegal, history{granted(0, 0, 1, 0), ended(1, 3, 4), granted(1, 5, 6, 0)}},
		{"mutex: given back twice", mutexModel, porcupine.Illegal, history{granted(0, 0, 1, 0), ended(0, 3, 4), ended(0, 5, 6)}},
		{"mutex: never given back", mutexModel, porcupine.Illegal, history{granted(0, 0, 1, 0), granted(1, 5, 6, 0)}},

		{"fenced: rising, with a gap", fencedModel, porcupine.Ok, history{granted(0, 0, 1, 7), ended(0, 5, 6), granted(1, 2, 7, 9), ended(1, 8, 9)}},
		{"fenced: smaller", fencedModel, porcupine.Illegal, history{granted(0, 0, 1, 9), ended(0, 2, 3), granted(1, 4, 5, 7), ended(1, 8, 9)}},
		{"fenced: the same", fencedModel, porcupine.Illegal, history{granted(0, 0, 1, 7), ended(0, 2, 3), granted(1, 4, 5, 7), ended(1, 8, 9)}},
		{"fenced: two at once", fencedModel, porcupine.Illegal, history{granted(0, 0, 1, 7), ended(0, 5, 6), granted(1, 2, 4, 8), ended(1, 8, 9)}},

		{"read/write: readers at once", sharedModel, porcupine.Ok, history{reader(granted(0, 0, 1, 1)), reader(granted(1, 2, 3, 2)), reader(ended(0, 4, 5)), reader(ended(1, 6, 7)), granted(2, 2, 8, 3)}},
		{"read/write: readers whose grants were seen the other way round", sharedModel, porcupine.Ok, history{reader(granted(0, 0, 2, 2)), reader(granted(1, 0, 1, 1)), reader(ended(0, 4, 5)), reader(ended(1, 6, 7))}},
		{"read/write: a writer beside a reader", sharedModel, porcupine.Illegal, history{reader(granted(0, 0, 1, 1)), granted(2, 2, 3, 2), reader(ended(0, 4, 5)), ended(2, 6, 7)}},
		{"read/write: a reader beside a writer", sharedModel, porcupine.Illegal, history{granted(0, 0, 1, 1), reader(granted(2, 2, 3, 2)), ended(0, 4, 5), reader(ended(2, 6, 7))}},
		{"read/write: a reader with a smaller fence", sharedModel, porcupine.Illegal, history{reader(granted(0, 0, 1, 2)), reader(granted(1, 2, 3, 1)), reader(ended(0, 4, 5)), reader(ended(1, 6, 7))}},
		{"read/write: two writers", sharedModel, porcupine.Illegal, history{granted(0, 0, 1, 1), granted(1, 2, 3, 2), ended(0, 4, 5), ended(1, 6, 7)}},

		{"permits: all of them", permitsModel, porcupine.Ok, history{both(granted(0, 0, 1, 1)), granted(1, 2, 3, 2), both(ended(0, 4, 5)), granted(2, 3, 8, 3)}},
		{"permits: one too many", permitsModel, porcupine.Illegal, history{both(granted(0, 0, 1, 1)), both(granted(1, 2, 3, 2)), both(ended(0, 4, 5)), both(ended(1, 4, 5))}},
		{"permits: a smaller fence", permitsModel, porcupine.Illegal, history{granted(0, 0, 1, 2), granted(1, 2, 3, 1)}},
		{"permits: given back without a holder", permitsModel, porcupine.Illegal, history{granted(0, 0, 1, 2), ended(1, 2, 3), ended(0, 4, 5)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect.Equal(t, "whether the model explains the history", explained(row.model, row.history), row.want)
		})
	}
}
