//go:build check

package client_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The programs make the calls of the table, and check what the table says; they end with "ok" or
// fail.
func TestPythonAndNodeClientsAgainstAHostileServer(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"Python": {"env", "PYTHONPATH=" + pythonPackage, languages[0].program, "testdata/hostile.py"},
		"Node":   {languages[1].program, "testdata/hostile.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveHostile(t)
			expect.Equal(t, "what the program prints", ran(t, ".", command[0], append(command[1:], s.url, hostileTable)...), "ok\n")
			for n, row := range s.Rows {
				expect.Equal(t, "requests of the row: "+row.Name, s.asked[n], 1)
			}
		})
	}
}
