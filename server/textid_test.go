package server_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestULIDsAndTypeIDsRiseAndAreTakenApart(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for path, row := range map[string]struct{ form, prefix, format string }{
		"/id/ulid": {"^[0-7][0-9A-HJKMNP-TV-Z]{25}$", "", "ulid"}, "/id/typeid": {"^[0-7][0-9a-hjkmnp-tv-z]{25}$", "", "typeid"},
		"/id/typeid?prefix=sales_order": {"^sales_order_[0-7][0-9a-hjkmnp-tv-z]{25}$", "sales_order", "typeid"},
	} {
		before := time.Now().Truncate(time.Millisecond)
		one := must[api.TextIDs](t, s, 200, "GET", path, "")
		expect.MustEqual(t, "GET "+path+": ids", one.IDs, []string{one.ID})
		many := path + "?n=10000"
		if row.prefix != "" {
			many = path + "&n=10000"
		}
		got := must[api.TextIDs](t, s, 200, "GET", many, "")
		if len(got.IDs) != 10_000 || got.ID != "" || !slices.IsSorted(got.IDs) || len(slices.Compact(slices.Clone(got.IDs))) != 10_000 || got.IDs[0] <= one.ID {
			t.Errorf("GET %s: got %d ids from %s to %s, want 10,000 that rise, after %s", many, len(got.IDs), got.IDs[0], got.IDs[len(got.IDs)-1], one.ID)
		}
		if !regexp.MustCompile(row.form).MatchString(one.ID) {
			t.Errorf("GET %s: got %s, want the form %s", path, one.ID, row.form)
		}
		expect.Equal(t, "GET "+path+": whether it names a prefix", one.Prefix != nil, row.format == "typeid")
		parts := must[api.DecodedText](t, s, 200, "GET", "/id/decode/"+one.ID+"?format="+row.format, "")
		expect.Equal(t, "the prefix of "+one.ID, parts.Prefix, row.prefix)
		wantBetween(t, "the time of "+one.ID, parts.Time.UnixMilli(), before.UnixMilli(), time.Now().UnixMilli()+1)
	}
	s.do(t, "GET", "/id/ulid?n=2", "", "Accept: text/plain").wantStatus(t, 200)
	s.do(t, "GET", "/id/decode/prefix_01h455vb4pex5vsknk084sn02q?format=typeid", "", "Accept: text/plain").wantBody(t, "1688096058518\n01890a5d-ac96-774b-bcce-b302099a8057\nprefix\n")
	s.do(t, "GET", "/id/decode/00000000000000000000000000?format=typeid", "", "Accept: text/plain").wantBody(t, "-1\n00000000-0000-0000-0000-000000000000\n\n")
}
