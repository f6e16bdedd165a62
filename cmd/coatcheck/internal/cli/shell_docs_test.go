package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// shellBlock is what a page has of a shell without showing what it prints.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// What the pages tell to type is there: this program's commands with their flags, targets of the
// Makefile, packages and files of the repository. What can be run without ports, clusters and
// minutes is run besides, by TestShellOfThePagesRuns.
func TestShellOfThePagesIsOfThisProgram(t *testing.T) {
	blocks := 0
	for _, page := range pagesOf(t) {
		for _, block := range shellBlock.FindAllStringSubmatch(readRoot(t, page), -1) {
			blocks++
			for _, fault := range shellFaults(page, block[1]) {
				t.Errorf("%s: %s in\n%s", page, fault, block[1])
			}
		}
	}
	if blocks < 30 {
		t.Errorf("%d blocks: does this test still read them?", blocks)
	}
}

func TestWrongShellIsFound(t *testing.T) {
	for block, want := range map[string]string{
		"coatcheck doctor --redis redis://localhost # fine": "",
		"ID=$(coatcheck id)":                            "",
		"coatcheck docter":                              "docter is no command",
		"cd bench && coatcheck serve --reddis x":        "no flag --reddis",
		"go run ./cmd/coatcheck serve --devel":          "no flag --devel",
		"make tests":                                    "no target tests",
		"go test ./chaoss":                              "no ./chaoss",
		"kubectl apply -f deploy/kubernetes/other.yaml": "no deploy/kubernetes/other.yaml",
		"if true": "no shell",
		"coatcheck lock run x -- coatcheck lock run --wat y":  "no flag --wat",
		"TOKEN=$(curl -s x | cut -d'\"' -f4); coatcheck tokn": "tokn is no command",
	} {
		faults := shellFaults("README.md", block)
		if got := strings.Join(faults, "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", block, got, want)
		}
	}
}

// pagesOf lists all documents of the repository, from its root.
func pagesOf(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && name != root && entry.Name() != ".." || entry.Name() == "node_modules" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			page, err := filepath.Rel(root, name)
			pages = append(pages, page)
			return err
		}
		return nil
	})
	expect.NoError(t, "look through the pages", err)
	return pages
}

// shellFaults names what is wrong with a block of a page, from whose folder or from the root its
// files are.
func shellFaults(page, block string) (faults []string) {
	if out, err := exec.Command("bash", "-n", "-c", block).CombinedOutput(); err != nil {
		return []string{"no shell: " + string(out)}
	}
	for _, words := range shellCommands(block) {
		if err := wordsFault(page, words); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

var ourFile = regexp.MustCompile(`^(\./)?(cmd|deploy|chaos|clients|conformance|examples|internal)(/[a-zA-Z0-9_./-]*)?$`)

// wordsFault says what is wrong with a command, and with one that it runs after two dashes.
func wordsFault(page string, words []string) error {
	if end := slices.Index(words, "--"); end >= 0 {
		if err := wordsFault(page, words[end+1:]); err != nil {
			return err
		}
	}
	switch {
	case len(words) == 0 || words[0] == "make" && len(words) == 1:
		return nil
	case words[0] == "coatcheck":
		return checkArguments(words[1:])
	case len(words) > 3 && slices.Equal(words[:3], []string{"go", "run", "./cmd/coatcheck"}):
		return checkArguments(words[3:])
	case words[0] == "make" && !strings.Contains("\n"+makefile(), "\n"+words[1]+":"):
		return errors.New("no target " + words[1])
	}
	for _, word := range words {
		if (ourFile.MatchString(word) || words[0] == "go" && strings.HasPrefix(word, "./")) && !isThere(page, word) {
			return fmt.Errorf("no %s", word)
		}
	}
	return nil
}

func makefile() string {
	text, _ := os.ReadFile(filepath.Join(root, "Makefile")) // an empty one has no target
	return string(text)
}

func isThere(page, name string) bool {
	_, here := os.Stat(filepath.Join(root, name))
	_, beside := os.Stat(filepath.Join(root, filepath.Dir(page), name))
	return here == nil || beside == nil
}

var shellQuotes = strings.NewReplacer("'", "", `"`, "", "$(", "\n", "`", "\n", ")", "\n", "&&", "\n", "||", "\n", "|", "\n", ";", "\n", "\\\n", " ", "&", " ")

// shellCommands are the words of a block's commands. It is no parser: quoted text becomes words,
// which harms nothing here, since the pages quote no command of ours.
func shellCommands(block string) (commands [][]string) {
	var kept strings.Builder
	heredoc := ""
	for line := range strings.Lines(block) {
		if heredoc != "" {
			if strings.TrimSpace(line) == heredoc {
				heredoc = ""
			}
			continue
		}
		if _, after, found := strings.Cut(line, "<<'"); found {
			heredoc, _, _ = strings.Cut(after, "'")
		}
		if before, _, found := strings.Cut(line, "# "); found {
			line = before + "\n"
		}
		kept.WriteString(line)
	}
	for line := range strings.Lines(shellQuotes.Replace(kept.String())) {
		words := strings.Fields(line)
		for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "(" || words[0] == "do" || words[0] == "then") {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}
