//go:build check

package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// pageDatabase is a database as the page writes it.
var pageDatabase = regexp.MustCompile(`(mysql|postgres)://coatcheck:secret@db-[a-c]\.example:[0-9]+/ids`)

// second is a time as databases keep it.
var second = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z`)

// TestCommandsOfTheSegmentsPage runs every command of docs/segments.md in one shell, on three
// databases, and compares what it prints with the page.
func TestCommandsOfTheSegmentsPage(t *testing.T) {
	t.Parallel()
	servers := map[string]*sqltest.Server{"mysql": sqltest.Start(t, sqltest.MariaDB), "postgres": sqltest.Start(t, sqltest.PostgreSQL)}
	databases := map[string]string{}
	in := func(command string) string {
		return pageDatabase.ReplaceAllStringFunc(command, func(url string) string {
			if databases[url] == "" {
				server := servers[strings.Split(url, ":")[0]]
				databases[url] = server.URL(server.Database(t))
			}
			return databases[url]
		})
	}
	samePage(t, pages+"segments.md", without(second), func(steps []step) []string {
		outputs := inOneShell(t, "", steps, in)
		for i, output := range outputs {
			if strings.Contains(output, sqltest.Password) {
				t.Errorf("$ %s\nprinted the password", steps[i].command)
			}
		}
		return outputs
	})
	if len(databases) != 3 {
		t.Errorf("the page names %d databases, want 3", len(databases))
	}
}
