package stable

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// root is the repository's, from the folder of this module.
const root = "../.."

// promises are lines, each of which a later version has to keep. More may come.
type promises map[string]bool

// broken are those that a later version has not, sorted. An operation that went as a whole is one
// line.
func (p promises) broken(now promises) (gone []string) {
	for line := range p {
		whole, _, isPart := strings.Cut(line, ": ")
		if !now[line] && !(isPart && p[whole] && !now[whole]) {
			gone = append(gone, line)
		}
	}
	slices.Sort(gone)
	return gone
}

// rows are the names in the first column of a page's tables that have a form, or all in backticks
// there.
func rows(page string, form *regexp.Regexp) promises {
	found := promises{}
	for line := range strings.Lines(page) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && cells[0] == "" {
			for _, name := range form.FindAllString(cells[1], -1) {
				found[name] = true
			}
		}
	}
	return found
}

var (
	metricName = regexp.MustCompile(`coatcheck_[a-z0-9_]+`)
	keyName    = regexp.MustCompile("`[a-z]+:\\{[^`]*`")
)

// metricsOf are the metrics of docs/metrics.md, and the labels of each.
func metricsOf(page string) promises {
	found := promises{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		name := metricName.FindString(cells[1])
		if name == "" || strings.Trim(cells[1], " `") != name {
			continue
		}
		found[name+" "+strings.TrimSpace(cells[2])] = true
		for label := range strings.SplitSeq(cells[3], ",") {
			if label = strings.TrimSpace(label); label != "" {
				found[name+" label "+label] = true
			}
		}
	}
	return found
}

// keysOf are the names of keys in docs/keys.md.
func keysOf(page string) promises { return rows(page, keyName) }

// flagsOf are the commands and flags of a list that has each command with its flags in one line.
func flagsOf(list string) promises {
	found := promises{}
	for line := range strings.Lines(list) {
		command := []string{}
		for word := range strings.FieldsSeq(line) {
			if strings.HasPrefix(word, "--") {
				found[strings.Join(command, " ")+" "+word] = true
			} else {
				command = append(command, word)
			}
		}
		found[strings.Join(command, " ")] = true
	}
	return found
}

// fold makes one line of the flags that went together: those of a command that is gone are the
// command, and one that no command has any more is its name.
func fold(gone []string, now promises) (lines []string) {
	kept := map[string]bool{}
	for line := range now {
		kept[line[strings.LastIndexByte(line, ' ')+1:]] = true
	}
	for _, line := range gone {
		command, name, flag := strings.Cut(line, " --")
		switch {
		case flag && !now[command]:
			line = command
		case flag && !kept["--"+name]:
			line = "--" + name
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// released is the last release.
type released struct{ version, commit string }

// lastRelease reads which release comes before this tree: its version and its commit.
func lastRelease() (released, error) {
	text, err := os.ReadFile("release")
	if err != nil {
		return released{}, err
	}
	words := strings.Fields(string(text))
	if len(words) != 2 {
		return released{}, fmt.Errorf("the file release has %d words, want a version and a commit", len(words))
	}
	return released{words[0], words[1]}, nil
}

// file is one of the release.
func (r released) file(ctx context.Context, name string) (string, error) {
	show := exec.CommandContext(ctx, "git", "show", r.commit+":"+name) //nolint:gosec // of the file release
	show.Dir = root
	text, err := show.Output()
	if err != nil {
		return "", fmt.Errorf("git show %s:%s: %w; all of the history is needed: git fetch --unshallow", r.commit, name, err)
	}
	return string(text), nil
}

// tree unpacks the release into a folder that stays, and returns the folder.
func (r released) tree(ctx context.Context) (string, error) {
	folder, err := exec.CommandContext(ctx, filepath.Join(root, "tools", "unpack"), r.commit).Output() //nolint:gosec // as above
	if err != nil {
		return "", fmt.Errorf("tools/unpack %s: %w; all of the history is needed: git fetch --unshallow", r.commit, err)
	}
	return strings.TrimSpace(string(folder)), nil
}

var (
	announcement = regexp.MustCompile(`(?m)^- \*\*Breaking\*\* (?:.|\n {2})*`)
	quoted       = regexp.MustCompile("`([^`]+)`")
	spaces       = regexp.MustCompile(`\s+`)
)

// announced are the names that a changelog has as breaking above the release: in an item that
// begins with **Breaking**, each in backticks.
func (r released) announced(changelog string) map[string]bool {
	above, _, _ := strings.Cut(changelog, "\n## "+r.version+"\n")
	names := map[string]bool{}
	for _, item := range announcement.FindAllString(above, -1) {
		for _, name := range quoted.FindAllStringSubmatch(item, -1) {
			names[spaces.ReplaceAllString(name[1], " ")] = true
		}
	}
	return names
}

// unannounced are the broken promises that the changelog does not have.
func (r released) unannounced(broken []string, changelog string) (missing []string) {
	names := r.announced(changelog)
	return slices.DeleteFunc(slices.Clone(broken), func(line string) bool {
		return names[strings.ReplaceAll(line, "`", "")]
	})
}
