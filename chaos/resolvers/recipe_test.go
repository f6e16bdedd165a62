//go:build check && linux

package resolvers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// statement is one of docs/effects.md, with the places of its values as a driver wants them.
type statement struct {
	SQL  string   `json:"sql"`
	Args []string `json:"args"` // the names of the values, in the order of the places
}

// recipe is the table of operations of docs/effects.md.
type recipe struct {
	table    string
	Effect   []statement `json:"effect"` // the effect itself comes before the last one
	Resolver []statement `json:"resolver"`
}

// dialect is how a database is asked.
type dialect struct {
	section string             // of the page
	place   func(n int) string // of the n-th value of a statement, from 1
}

func numbered(n int) string { return fmt.Sprint("$", n) }
func marked(int) string     { return "?" }
func formatted(int) string  { return "%s" }

var (
	sqlBlock    = regexp.MustCompile("(?s)```sql\n(.*?)```")
	sqlComment  = regexp.MustCompile(`(?m)^--.*\n`)
	sqlArgument = regexp.MustCompile(`:[a-z]+`)
)

// recipeOf reads the last three blocks of a section of the page: the table, the effect and the
// resolver.
func recipeOf(t testing.TB, of dialect) recipe {
	t.Helper()
	page, err := os.ReadFile("../../docs/effects.md")
	expect.NoError(t, "reading docs/effects.md", err)
	_, section, _ := strings.Cut(string(page), "\n### "+of.section+"\n")
	section, _, _ = strings.Cut(section, "\n### ")
	blocks := sqlBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) < 3 {
		t.Fatalf("docs/effects.md has %d blocks under %q, want the table, the effect and the resolver", len(blocks), of.section)
	}
	blocks = blocks[len(blocks)-3:]
	r := recipe{table: blocks[0][1], Effect: of.statements(blocks[1][1]), Resolver: of.statements(blocks[2][1])}
	if len(r.Effect) < 3 || len(r.Resolver) != 4 {
		t.Fatalf("docs/effects.md, %q: got the effect %v and the resolver %v, want transactions", of.section, r.Effect, r.Resolver)
	}
	return r
}

func (of dialect) statements(text string) (all []statement) {
	for part := range strings.SplitSeq(sqlComment.ReplaceAllString(text, ""), ";") {
		one := statement{Args: []string{}}
		one.SQL = sqlArgument.ReplaceAllStringFunc(strings.TrimSpace(part), func(name string) string {
			one.Args = append(one.Args, name[1:])
			return of.place(len(one.Args))
		})
		if one.SQL != "" {
			all = append(all, one)
		}
	}
	return all
}

// file writes the recipe where a service can read it.
func (r recipe) file(t testing.TB) string {
	t.Helper()
	text, err := json.Marshal(r)
	expect.NoError(t, "writing the recipe", err)
	name := filepath.Join(t.TempDir(), "recipe.json")
	expect.NoError(t, "writing the recipe", os.WriteFile(name, text, 0o600))
	return name
}

// values are the values of a statement's places.
func (s statement) values(by map[string]any) (values []any) {
	for _, name := range s.Args {
		values = append(values, by[name])
	}
	return values
}
