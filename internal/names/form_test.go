package names_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
)

// A form judges as the regular expression of the same bytes and bounds does: every single byte, and
// lengths around both bounds.
func TestFormJudgesAsItsRegularExpression(t *testing.T) {
	for _, row := range []struct {
		chars       string
		least, most int
	}{
		{"A-Za-z0-9._:~@-", 1, 200}, {"!-~", 16, 128}, {" -~", 1, 255}, {"a-z0-9", 0, 3}, {"A-Za-z0-9!#$%&'*+.^_`|~-", 1, 100}, {"-", 1, 2},
	} {
		form := names.NewForm(row.chars, row.least, row.most)
		want := regexp.MustCompile(fmt.Sprintf("^[%s]{%d,%d}$", row.chars, row.least, row.most))
		texts := []string{"", "ä", "\n"}
		for c := range 256 {
			text := string([]byte{byte(c)})
			texts = append(texts, text, strings.Repeat(text, max(row.least, 1)), strings.Repeat(text, row.most)+"\n")
		}
		for _, n := range []int{row.least - 1, row.least, row.least + 1, row.most - 1, row.most, row.most + 1} {
			texts = append(texts, strings.Repeat(row.chars[:1], max(n, 0)))
		}
		for _, text := range texts {
			if got, want := form.MatchString(text), want.MatchString(text); got != want {
				t.Errorf("NewForm(%q, %d, %d) of %q: got %v, want %v", row.chars, row.least, row.most, text, got, want)
			}
		}
	}
}
