package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/config"
)

// update writes what the program has into the pages: go test ./internal/cli -run
// ThePageOfTheSettings -update. With -tags check it writes what the pages' commands print, too.
var update = flag.Bool("update", false, "write real output into the pages")

const configurationPage = "../../docs/configuration.md"

// settingsTable writes settings as a table of Markdown.
func settingsTable(table []*config.Setting) string {
	var text strings.Builder
	text.WriteString("| flag | default | unit | on SIGHUP | meaning |\n|---|---|---|---|---|\n")
	group := ""
	for _, s := range table {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&text, "| **%s** | | | | |\n", group)
		}
		value := "none"
		if s.Value != "" && s.Value != config.Unsaid {
			value = "`" + s.Value + "`"
		}
		fmt.Fprintf(&text, "| `--%s` | %s | %s | %s | %s |\n", s.Name, value, cell(s.Unit), reload(s.Hot), cell(s.Help))
	}
	return text.String()
}

// cell keeps a text within its cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;").Replace(text)
}

// The page of the settings has the tables that the program itself reads its settings by. Run with
// -update to write them anew.
func TestThePageOfTheSettingsIsThatOfTheProgram(t *testing.T) {
	page, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	want := string(page)
	for name, table := range map[string][]*config.Setting{"serve": config.ServiceSettings(&config.Service{}), "gateway": config.GatewaySettings(&config.Gateway{Service: &config.Service{}})} {
		begin, end := "<!-- settings of "+name+" -->\n", "<!-- end of settings of "+name+" -->"
		before, rest, found := strings.Cut(want, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("no place for the settings of %s", name)
		}
		want = before + begin + settingsTable(table) + end + after
	}
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatal("docs/configuration.md is not what the program has; go test ./internal/cli -run TestThePageOfTheSettings -update writes it")
	}
	if err := os.WriteFile(configurationPage, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}
