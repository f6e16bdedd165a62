package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestULIDsAndTypeIDsAreMadeWithoutAService(t *testing.T) {
	for line, start := range map[string]string{"id ulid": "0", "id typeid": "0", "id typeid order": "order_0"} {
		ids := strings.Fields(execute(t, nil, strings.Fields(line+" -n 1000")...).exits(done).stdout)
		if len(ids) != 1000 || !slices.IsSorted(ids) || !strings.HasPrefix(ids[0], start) || len(ids[0]) != len(start)+25 {
			t.Errorf("coatcheck %s -n 1000: got %d ids that begin with %v, want 1000 that rise and begin with %s", line, len(ids), ids[:min(len(ids), 2)], start)
		}
	}
	var made api.TextIDs
	execute(t, nil, "id", "typeid", "order", "--json").exits(done).into(&made)
	expect.Equal(t, "prefix of id typeid order", *made.Prefix, "order")
	lacks(t, "id ulid --json", execute(t, nil, "id", "ulid", "--json").exits(done).stdout, "prefix")
	for line, says := range map[string]string{"id ulid order": "", "id typeid Order": "a–z", "id typeid order_": "a–z", "id typeid a b": "one prefix", "id ulid -n 0": "count"} {
		execute(t, nil, strings.Fields(line)...).exits(usage, says)
	}
}

func TestULIDsAndTypeIDsAreDecoded(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		tell(t, at, []told{
			{"id decode --json --format typeid prefix_01h455vb4pex5vsknk084sn02q", done,
				`{"ids":[{"id":"prefix_01h455vb4pex5vsknk084sn02q","prefix":"prefix","uuid":"01890a5d-ac96-774b-bcce-b302099a8057","time":"2023-06-30T03:34:18.518Z"}]}` + "\n"},
			{"id decode --json --format ulid 01ARZ3NDEKTSV4RRFFQ69G5FAV", done,
				`{"ids":[{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","uuid":"01563e3a-b5d3-d676-4c61-efb99302bd5b","time":"2016-07-30T23:54:10.259Z"}]}` + "\n"},
			{"id decode --format ulid 01ARZ3NDEKTSV4RRFFQ69G5FAV", done, "" +
				"ID                          TIME                      UUID                                  PREFIX\n" +
				"01ARZ3NDEKTSV4RRFFQ69G5FAV  2016-07-30T23:54:10.259Z  01563e3a-b5d3-d676-4c61-efb99302bd5b  \n"},
			{"id decode --format ulid 0", usage, "not a ULID"},
			{"id decode --format typeid order_0", usage, "not a TypeID"},
			{"id decode --format ulid --pool p 01ARZ3NDEKTSV4RRFFQ69G5FAV", usage, "pool"},
		})
	})
}
