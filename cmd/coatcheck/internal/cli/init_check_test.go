//go:build check

package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// initialized is a package that Go has initialized before main, and the bytes that it allocated.
type initialized struct {
	name  string
	bytes int
}

var initLine = regexp.MustCompile(`(?m)^init (\S+) @.*, (\d+) bytes, \d+ allocs$`)

// readInit reads the lines that GODEBUG=inittrace=1 makes a process print.
func readInit(t *testing.T, trace string) (all []initialized) {
	t.Helper()
	for _, match := range initLine.FindAllStringSubmatch(trace, -1) {
		bytes, err := strconv.Atoi(match[2])
		expect.NoError(t, "reading "+match[0], err)
		all = append(all, initialized{match[1], bytes})
	}
	return all
}

// Most of the time that `once` takes around a short command is the start of two processes. So a
// package makes what it needs when it is first used, such as a regular expression (lazyregexp) or a
// script, and a guard starts before the service's packages.
func TestPackagesMakeLittleBeforeMain(t *testing.T) {
	// most: bytes of a package, and of all those of a guard
	const module, most, mostOfGuard = "github.com/coatcheck/coatcheck/", 16 << 10, 256 << 10
	once := exec.Command(buildProgram(t), "once", "nightly", "--redis", redistest.Start(t).URL(), "--", "true")
	once.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := once.CombinedOutput()
	expect.NoError(t, "coatcheck once: "+string(trace), err)
	const first = "init internal/bytealg "
	processes := strings.Split(string(trace), first)
	expect.MustEqual(t, "processes that print their packages, and what comes before", len(processes), 3)
	program, guard := readInit(t, processes[1]), readInit(t, processes[2])
	read := false // does this test still read the lines?
	for _, one := range program {
		read = read || one.name == module+"server"
		if strings.HasPrefix(one.name, module) && one.bytes > most {
			t.Errorf("%s allocates %d bytes before main, want %d at most", one.name, one.bytes, most)
		}
	}
	expect.Equal(t, "package server is among those of the program", read, true)
	sum := 0
	for _, one := range guard {
		sum += one.bytes
		if one.name == "net/http" || one.name == module+"server" || strings.HasPrefix(one.name, "github.com/prometheus/client_golang/") {
			t.Errorf("the guard initializes %s, want a start before that", one.name)
		}
	}
	if sum == 0 || sum > mostOfGuard {
		t.Errorf("the packages of a guard allocate %d bytes, want some and %d at most", sum, mostOfGuard)
	}
}
