package client_test

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/snowflake"
)

// page describes how to use the service without this package.
const page = "../docs/remote.md"

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, "reading the page", err)
	return string(text)
}

// The page has every code that these endpoints can answer, with its status, and says of each
// whether anything was done as this package does.
func TestCodesOfThePage(t *testing.T) {
	text := readPage(t)
	checkCodes(t, section(text, "## What to do on each answer\n"), told)
	checkCodes(t, section(text, "### What to do on each answer about a worker id\n"), toldOfWorkers)
	if want := client.Fingerprint("charge", "42"); !strings.Contains(text, want) {
		t.Errorf("%s: the fingerprint is not %s", page, want)
	}
}

// section is what stands below a heading, up to the next.
func section(text, heading string) string {
	_, text, _ = strings.Cut(text, heading)
	text, _, _ = strings.Cut(text, "\n#")
	return text
}

func checkCodes(t *testing.T, text string, codes map[api.Code]error) {
	t.Helper()
	for code := range codes {
		_, after, found := strings.Cut(text, "`"+string(code)+"`")
		if !found {
			t.Errorf("the code %s is missing on the page", code)
			continue
		}
		columns := strings.Split(after, "|")
		perhaps := errors.Is(codes[code], client.ErrUnknownOutcome)
		if done := strings.TrimSpace(columns[1]); (done == "perhaps") != perhaps || !perhaps && !strings.HasPrefix(done, "nothing") {
			t.Errorf("the page says of %s that %q was done, want perhaps: %t, else nothing", code, done, perhaps)
		}
	}
	for _, match := range regexp.MustCompile("(\\d{3}) `([a-z-]+)`").FindAllStringSubmatch(text, -1) {
		if kind, known := api.Lookup(api.Code(match[2])); known && match[1] != strconv.Itoa(kind.Status) {
			t.Errorf("the page says of %s that its status is %s, want %d", match[2], match[1], kind.Status)
		}
	}
}

// The ids of the page are those of package snowflake.
func TestIDsOfThePage(t *testing.T) {
	var want []string
	for sequence := range int64(2) {
		id, err := snowflake.MustLayout("41/10/12").Encode(snowflake.Parts{Time: snowflake.DefaultEpoch.Add(time.Second), Worker: 5, Sequence: sequence}, snowflake.DefaultEpoch)
		must(t, "encoding the id of the page", err)
		want = append(want, id.String())
	}
	if !strings.Contains(readPage(t), "\n"+strings.Join(want, " ")+"\n") {
		t.Errorf("the page does not say %s", want)
	}
}
