package cli

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// update writes what the program has into the pages: go test ./cmd/coatcheck/internal/cli -run
// ThePageOfTheSettings -update. With -tags check it writes what the pages' commands print, too.
var update = flag.Bool("update", false, "write real output into the pages")

const configurationPage = "../../../../docs/configuration.md"

// settingsTable writes settings as a table of Markdown.
func settingsTable(table []*config.Setting) string {
	var text strings.Builder
	text.WriteString("| flag | default | unit | meaning |\n|---|---|---|---|\n")
	group := ""
	for _, s := range table {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&text, "| **%s** | | | |\n", group)
		}
		value := ""
		if s.Value != "" && s.Value != config.Unsaid {
			value = "`" + s.Value + "`"
		}
		unit := cell(s.Unit)
		if s.Hot {
			unit += ", *reload*"
		}
		fmt.Fprintf(&text, "| `--%s` | %s | %s | %s |\n", s.Name, value, unit, cell(s.Help))
	}
	return text.String()
}

// apart returns the settings that are not word for word those of the service, and a sentence with
// the names of those that are.
func apart(gateway, service []*config.Setting) (own []*config.Setting, common string) {
	var names []string
	for _, s := range gateway {
		same := func(o *config.Setting) bool {
			return o.Name == s.Name && o.Value == s.Value && o.Unit == s.Unit && o.Hot == s.Hot && o.Help == s.Help
		}
		if slices.ContainsFunc(service, same) {
			names = append(names, "`--"+s.Name+"`")
		} else {
			own = append(own, s)
		}
	}
	return own, wrapped("As for `coatcheck serve`: " + strings.Join(names, ", ") + ".")
}

// wrapped breaks a text into the lines of a page.
func wrapped(text string) string {
	var lines strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case width == 0:
		case width+1+len(word) > 100:
			lines.WriteByte('\n')
			width = -1
		default:
			lines.WriteByte(' ')
		}
		lines.WriteString(word)
		width += 1 + len(word)
	}
	return lines.String() + "\n"
}

// cell keeps a text within its cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;").Replace(text)
}

// The page of the settings has the tables that the program itself reads its settings by. Run with
// -update to write them anew.
func TestThePageOfTheSettingsIsThatOfTheProgram(t *testing.T) {
	page, err := os.ReadFile(configurationPage)
	expect.NoError(t, "read the page", err)
	want := string(page)
	service := config.ServiceSettings(&config.Service{})
	gateway, common := apart(config.GatewaySettings(&config.Gateway{Service: &config.Service{}}), service)
	for name, table := range map[string]string{"serve": settingsTable(service), "gateway": settingsTable(gateway) + "\n" + common} {
		begin, end := "<!-- settings of "+name+" -->\n", "<!-- end of settings of "+name+" -->"
		before, rest, found := strings.Cut(want, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("no place for the settings of %s", name)
		}
		want = before + begin + table + end + after
	}
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatal("docs/configuration.md is not what the program has; go test ./cmd/coatcheck/internal/cli -run TestThePageOfTheSettings -update writes it")
	}
	expect.NoError(t, "write the file", os.WriteFile(configurationPage, []byte(want), 0o600))
}
