package coatcheck_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// The README shows the body of Example, which runs as a test: what people copy is what works.
func TestReadmeShowsTheExampleThatRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	expect.NoError(t, "os.ReadFile", err)
	example, err := os.ReadFile("example_test.go")
	expect.NoError(t, "os.ReadFile", err)
	shown := goBlock.FindStringSubmatch(string(readme))
	if shown == nil {
		t.Fatal("the README shows no Go")
	}
	_, body, _ := strings.Cut(string(example), "func Example() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if got, want := lines(shown[1]), lines(body); got != want {
		t.Errorf("the README shows\n%s\nand the example is\n%s", got, want)
	}
}

// lines drops the indentation that only one of the two has.
func lines(code string) string {
	var kept []string
	for line := range strings.Lines(strings.TrimSpace(code)) {
		kept = append(kept, strings.TrimSpace(line))
	}
	return strings.Join(kept, "\n")
}

func TestReadmeNamesTheTestCommandThatCIRuns(t *testing.T) {
	ci, err := os.ReadFile(".ci/run")
	expect.NoError(t, "os.ReadFile", err)
	readme, err := os.ReadFile("README.md")
	expect.NoError(t, "os.ReadFile", err)
	if !strings.Contains(string(ci), "\nmake test\n") || !strings.Contains(string(readme), "\nmake test ") {
		t.Error("the README and .ci/run do not both say `make test`")
	}
}

// Whoever decides reads it at one sitting.
func TestReadmeFitsInEightKilobytes(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	expect.NoError(t, "os.ReadFile", err)
	if len(readme) > 8000 {
		t.Errorf("the README has %d bytes, want at most 8,000", len(readme))
	}
}

// The table of what a repeat gets stands twice, and is one.
func TestReadmeAndItsPageSayTheSameOfARepeat(t *testing.T) {
	table := func(file string) string {
		text, err := os.ReadFile(file)
		expect.NoError(t, "os.ReadFile", err)
		_, after, _ := strings.Cut(string(text), "## What a repeat gets\n\n")
		rows, _, _ := strings.Cut(after, "\n\n")
		return strings.ReplaceAll(rows, "](docs/", "](")
	}
	expect.Equal(t, "the table of docs/idempotency.md", table("docs/idempotency.md"), table("README.md"))
	expect.Contains(t, "the table", table("README.md"), "| it runs |")
}
