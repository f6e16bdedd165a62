package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	verify "github.com/coatcheck/coatcheck/internal/testing/expect" // expect is another name here
)

// table is the README's table of all checks.
func table() string {
	var b strings.Builder
	b.WriteString("| check | | what is right | needs |\n|---|---|---|---|\n")
	for _, c := range checks() {
		var needs []string
		for _, need := range c.needs {
			needs = append(needs, "`"+need.flags+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.name, c.level, c.requirement, strings.Join(needs, ", "))
	}
	return b.String()
}

func TestReadmeTellsEveryCheck(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	verify.NoError(t, "reading the README", err)
	if !strings.Contains(string(readme), table()) {
		t.Errorf("the README's table is not that of the checks; want this one:\n%s", table())
	}
}
