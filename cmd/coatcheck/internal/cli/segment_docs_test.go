//go:build check

package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// pageDatabase is the database as the page writes it.
const pageDatabase = "mysql://coatcheck:secret@db-a.example:3306/ids"

// second is a time as databases keep it.
var second = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z`)

// TestCommandsOfTheSegmentsPage runs every command of docs/segments.md in one shell, on a database,
// and compares what it prints with the page.
func TestCommandsOfTheSegmentsPage(t *testing.T) {
	t.Parallel()
	server := sqltest.Start(t, sqltest.MariaDB)
	database := server.URL(server.Database(t))
	in := func(command string) string { return strings.ReplaceAll(command, pageDatabase, database) }
	samePage(t, pages+"segments.md", without(second), func(steps []step) []string {
		outputs := inOneShell(t, "", steps, in)
		for i, output := range outputs {
			if strings.Contains(output, sqltest.Password) {
				t.Errorf("$ %s\nprinted the password", steps[i].command)
			}
		}
		return outputs
	})
}
