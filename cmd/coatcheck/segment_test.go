package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/sqltest"
	"github.com/coatcheck/coatcheck/segment"
)

// segmentRun runs `coatcheck segment` in this process, with the database in the environment. None of its output may hold the password.
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
			{"stripe parcels --to " + database + "," + database + " --start 10 --json", done, `{"floor":"10","stripes":2,"tag":"parcels"}`, ""},
			{"stripe parcels --from " + database + " --to " + database, failed, "", "no such tag"},

			{"seed", usage, "", "one tag"},
			{"seed a/b", usage, "", "can not be a tag"},
			{"seed " + strings.Repeat("a", 129), usage, "", "1 to 128 characters"},
			{"seed ok --step 0", usage, "", "step (--step)"},
			{"seed ok --start -1", usage, "", "start (--start)"},
			{"ls orders", usage, "", "unexpected argument"},
			{"ls --table a;b", usage, "", "table"},
			{"ls --sql-timeout 1ns", usage, "", "sql-timeout"},
			{"stripe parcels", usage, "", "--to URL,URL"},
			{"stripe parcels --to -," + database, usage, "", "has no store"},
			{"stripe parcels --to " + database + ",redis://:hunter2@h", usage, "", "number 2: not the URL of a database"},
			{"ls --sql mysql://u:hunter2@h", usage, "", "names no database"},
		} {
			code, out, errs := segmentRun(t, database, strings.Fields(row.args)...)
			if code != row.code || !strings.Contains(out, row.out) || !strings.Contains(errs, row.err) || row.err == "" && errs != "" {
				t.Errorf("%s: %d\n%s%s\nwant %d, %q and %q", row.args, code, out, errs, row.code, row.out, row.err)
			}
		}
		var list struct {
			Tags []shownTag `json:"tags"`
		}
		_, out, _ := segmentRun(t, database, "ls", "--json")
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Tags) != 4 || list.Tags[0].Description != "Rechnungen" || list.Tags[0].UpdatedAt.IsZero() {
			t.Errorf("%v %+v", err, list)
		}
	})
}

func TestSegmentCommandsTellAnAbsentDatabaseFromARefusal(t *testing.T) {
	t.Parallel()
	if code, _, errs := segmentRun(t, "", "ls"); code != usage || !strings.Contains(errs, "COATCHECK_SQL") {
		t.Errorf("no database: %d %s", code, errs)
	}
	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
		database := server.URL(server.Database(t))
		wrong, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		wrong.User = url.UserPassword(sqltest.User, "hunter2")
		if code, _, errs := segmentRun(t, wrong.String(), "ls"); code != failed {
			t.Errorf("a wrong password: %d %s", code, errs)
		}
		if code, _, errs := segmentRun(t, server.URL("nowhere"), "ls"); code != failed {
			t.Errorf("no such database: %d %s", code, errs)
		}
		server.Kill()
		for _, args := range [][]string{{"ls"}, {"create-table"}, {"seed", "orders"}, {"retire", "orders"}, {"stripe", "orders", "--to", database}} {
			if code, _, errs := segmentRun(t, database, args...); code != tryLater {
				t.Errorf("%v on a server that is down: %d %s", args, code, errs)
			}
		}
		server.Restart(t) // what a PostgreSQL that was killed leaves in shared memory goes with its next start
	})
}

func TestDatabaseURLs(t *testing.T) {
	for _, row := range []struct {
		url, shown string
		dialect    segment.Dialect // "" = refused
	}{
		{"mysql://u:hunter2@h:1/db", "mysql://u:***@h:1/db", segment.MySQL},
		{"mariadb://u:hunter2@h/db?tls=true", "mariadb://u:***@h/db?***", segment.MySQL},
		{"mysql://h/db", "mysql://h/db", segment.MySQL},
		{"mysql://u:hunter2@[::1]:1/db", "mysql://u:***@[::1]:1/db", segment.MySQL},
		{"postgres://u:hunter2@h:1/db?sslmode=disable", "postgres://u:***@h:1/db?***", segment.PostgreSQL},
		{"postgresql://u:hunter%402@h/db", "postgresql://u:***@h/db", segment.PostgreSQL},
		{"postgres://h/db?password=hunter2", "postgres://h/db?***", segment.PostgreSQL},

		{"", "", ""},
		{"mysql://u:hunter2@h/db?interpolateParams=hunter2", "mysql://u:***@h/db?***", ""},
		{"postgres://u:hunter2@h/db?sslmode=hunter2", "postgres://u:***@h/db?***", ""},
		{"mysql://u:hunter2@h", "***", ""},
		{"mysql://u:hunter2@h/", "***", ""},
		{"mysql://u:hunter2@h/a/b", "***", ""},
		{"mysql://u:hunter2@/db", "***", ""},
		{"mysql://u:hunter2@h:port/db", "***", ""},
		{"mysql://u:hunter2%@h/db", "***", ""},
		{"mysql:hunter2", "***", ""},
		{"redis://:hunter2@h/0", "***", ""},
		{"hunter2", "***", ""},
		{"u:hunter2@tcp(h:1)/db", "***", ""},
	} {
		db, dialect, err := openSQL(row.url)
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		if dialect != row.dialect || (err == nil) != (row.dialect != "") {
			t.Errorf("%s: %q, %v", row.url, dialect, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error says %v", row.url, err)
		}
		if shown := redactSQL(row.url); shown != row.shown {
			t.Errorf("%s is shown as %s, not as %s", row.url, shown, row.shown)
		}
	}
	var list []string
	if s := databaseURLs("to", "", &list); s.redact("mysql://u:hunter2@h/db,-,x") != "mysql://u:***@h/db,-,***" || s.parse("-,mysql://h/db") != nil || len(list) != 2 {
		t.Errorf("lists: %v", list)
	}
}
