package proctest

import (
	"os"
	"strings"
)

const logLines = 20 // of a server's log are shown with a failure

// LogTail says how a server's log ends, or why it cannot be read, for the text of an error.
func LogTail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "it has no log: " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "its log ends:\n" + strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}
