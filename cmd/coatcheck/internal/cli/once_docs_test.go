//go:build check

package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// crontab is the line that three nodes have.
var crontab = regexp.MustCompile("(?s)```crontab\n0 3 \\* \\* \\*  (.*?)```")

// The lines of crontabs in the pages run their job once, with the shell that cron uses.
func TestCrontabOfTheOncePages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docs/once.md", "examples/nightly/README.md"} {
		page, err := os.ReadFile("../../../../" + name)
		expect.NoError(t, "read the page", err)
		line := crontab.FindStringSubmatch(string(page))
		expect.MustEqual(t, "whether there is a line for cron in "+name, line != nil, true)
		command, job, found := strings.Cut(strings.TrimSpace(line[1]), " -- ")
		path, command, full := strings.Cut(command, "/coatcheck ") // cron's PATH has few folders
		expect.MustEqual(t, "whether the line has the full path", full && strings.HasPrefix(path, "/") && strings.HasPrefix(job, "/"), true)
		command = "coatcheck " + command
		// cron takes a percent sign for a line feed
		expect.MustEqual(t, "whether it has a job", found && !strings.ContainsAny(command+job, "%"), true)
		runs := t.TempDir() + "/runs"
		command = strings.Replace(command, "redis://redis:6379", redistest.Start(t).URL(), 1) + " -- sh -c 'echo run >>" + runs + "'"
		for range 3 {
			out, err := exec.Command("sh", "-c", "coatcheck() { "+asProgram+"=1 '"+built(t)+"' \"$@\"; }\n"+command).CombinedOutput()
			expect.MustEqual(t, "error of "+command+": "+string(out), err, nil)
		}
		text, err := os.ReadFile(runs)
		expect.MustEqual(t, "error of the file of runs", err, nil)
		expect.Equal(t, "runs", string(text), "run\n")
	}
}
