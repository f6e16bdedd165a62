//go:build check

package cli

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/segment"
)

// segmentRun runs `coatcheck segment` in this process, with the database in the environment. None
// of its output may hold the password.
func segmentRun(t *testing.T, database string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	getenv := func(name string) string { return map[string]string{"COATCHECK_SQL": database}[name] }
	code = run(t.Context(), append([]string{"segment"}, args...), getenv, &out, &errs)
	for _, secret := range []string{sqltest.Password, url.QueryEscape(sqltest.Password), url.UserPassword("", sqltest.Password).String(), "hunter2"} {
		if strings.Contains(out.String()+errs.String(), secret) {
			t.Errorf("%v shows the password: %s%s", args, out.String(), errs.String())
		}
	}
	return code, out.String(), errs.String()
}

func TestSegmentCommands(t *testing.T) {
	t.Parallel()
	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
		database := server.URL(server.Database(t))
		for _, row := range []struct {
			args     string
			code     int
			out, err string // what is in them
		}{
			{"ls", failed, "", "There is no table leaf_alloc. To make it: coatcheck segment create-table"},
			{"seed orders", failed, "", "create-table"},
			{"create-table", done, "The table leaf_alloc is there.", ""},
			{"create-table --json", done, `{"table":"leaf_alloc"}`, ""},
			{"create-table --table other", done, "The table other is there.", ""},
			{"seed orders --table segment_sequence", failed, "", "There is no table segment_sequence. To make it: coatcheck segment create-table"},
			{"create-table --table segment_sequence", done, "The table segment_sequence is there.", ""},
			{"seed orders --table segment_sequence --step 50 --start 7", done, "orders begins at 7, with 50 ids a fetch.", ""},
			{"seed orders --table segment_sequence --step 5 --start 7", failed, "", "the tag exists: with step 50, and first id 7"},
			{"ls --table segment_sequence", failed, "", "biz_tag"},
			{"ls", done, "There is no tag.", ""},
			{"ls --json", done, `{"tags":[]}`, ""},
			{"seed orders --step 2000 --start 1", done, "orders begins at 1, with 2000 ids a fetch.", ""},
			{"seed orders --step 5 --start 1000", failed, "", "the tag exists: orders has max_id 1 and step 2000"},
			{"seed bills --start 9223372036854775807 --description Rechnungen --json", done, `{"max_id":"9223372036854775807","step":2000,"tag":"bills"}`, ""},
			{"ls", done, "orders  1                    2000", ""},
			{"ls --json", done, `{"tag":"bills","max_id":"9223372036854775807","step":2000,`, ""},
			{"retire orders", done, "orders is retired. All its ids are below 1.", ""},
			{"retire orders --json", done, `{"max_id":"1","tag":"orders"}`, ""},
			{"retire nobody", failed, "", "no such tag"},

			{"seed", usage, "", "one tag"},
			{"seed a/b", usage, "", "cannot be a tag"},
			{"seed " + strings.Repeat("a", 129), usage, "", "1 to 128 characters"},
			{"seed ok --step 0", usage, "", "step (--step)"},
			{"seed ok --start -1", usage, "", "start (--start)"},
			{"ls orders", usage, "", "unexpected argument"},
			{"ls --table a;b", usage, "", "table"},
			{"ls --sql-timeout 1ns", usage, "", "sql-timeout"},
			{"ls --sql mysql://u:hunter2@h", usage, "", "names no database"},
		} {
			code, out, errs := segmentRun(t, database, strings.Fields(row.args)...)
			ended := result{t, "coatcheck segment " + row.args, code, out, errs}
			ended.exits(row.code, row.err).prints(row.out)
			if row.err == "" {
				expect.Equal(t, "stderr of "+ended.line, errs, "")
			}
		}
		var list struct {
			Tags []shownTag `json:"tags"`
		}
		_, out, _ := segmentRun(t, database, "ls", "--json")
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Tags) != 2 {
			t.Fatalf("segment ls --json: got %s and %v, want JSON of two tags", out, err)
		}
		expect.Equal(t, "description of the first tag in segment ls --json", list.Tags[0].Description, "Rechnungen")
		if list.Tags[0].UpdatedAt.IsZero() {
			t.Errorf("segment ls --json does not say when the first tag was updated: %s", out)
		}
	})
}

func TestSegmentCommandsTellAnAbsentDatabaseFromARefusal(t *testing.T) {
	t.Parallel()
	code, out, errs := segmentRun(t, "", "ls")
	result{t, "coatcheck segment ls without a database", code, out, errs}.exits(usage, "COATCHECK_SQL")
	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
		database := server.URL(server.Database(t))
		wrong, err := url.Parse(database)
		expect.NoError(t, "parse the URL", err)
		wrong.User = url.UserPassword(sqltest.User, "hunter2")
		if code, _, errs := segmentRun(t, wrong.String(), "ls"); code != failed {
			t.Errorf("segment ls with a wrong password: got exit code %d, want %d: %s", code, failed, errs)
		}
		if code, _, errs := segmentRun(t, server.URL("nowhere"), "ls"); code != failed {
			t.Errorf("segment ls of no such database: got exit code %d, want %d: %s", code, failed, errs)
		}
		server.Kill()
		for _, args := range [][]string{{"ls"}, {"create-table"}, {"seed", "orders"}, {"retire", "orders"}} {
			if code, _, errs := segmentRun(t, database, args...); code != tryLater {
				t.Errorf("segment %s on a server that is down: got exit code %d, want %d: %s", args, code, tryLater, errs)
			}
		}
		// what a PostgreSQL that was killed leaves in shared memory goes with its next start
		server.Restart(t)
	})
}

// The service takes ranges from the table that its settings name.
func TestSettingsNameTheTableOfTheSegments(t *testing.T) {
	t.Parallel()
	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
		database := server.URL(server.Database(t))
		for _, row := range []struct {
			table string
			want  segment.Range // but for its Lo, of the sequence any number of steps above
		}{
			{segment.DefaultLeafTable, segment.Range{Lo: 7, Hi: 57, Step: 50}},
			{segment.DefaultSequenceTable, segment.Range{Lo: 7, Hi: 57, Step: 50}},
		} {
			for _, args := range [][]string{{"create-table"}, {"seed", "orders", "--start", "7", "--step", "50"}} {
				if code, _, stderr := segmentRun(t, database, append(args, "--table", row.table)...); code != done {
					t.Fatalf("%v on %s: exit code %d, %s; want %d", args, row.table, code, stderr, done)
				}
			}
			opened, err := openSegments(&config.Service{SegmentSource: database, SegmentTable: row.table})
			expect.Error(t, "opening the source with "+row.table, err, nil)
			got, err := opened.source.Take(t.Context(), "orders", 0)
			expect.Error(t, "a range of "+row.table, err, nil)
			skipped := (got.Lo - row.want.Lo) / 50 * 50
			expect.Equal(t, "the range, from its first number on, of "+row.table, segment.Range{Lo: got.Lo - skipped, Hi: got.Hi - skipped, Step: got.Step}, row.want)
			expect.Equal(t, "whether Leaf's page lists the tags of "+row.table, opened.tags != nil, row.table == segment.DefaultLeafTable)
			expect.Error(t, "closing the source with "+row.table, opened.close(), nil)
		}
	})
}
