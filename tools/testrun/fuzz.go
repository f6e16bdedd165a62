package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fuzzFlag has each fuzz test run with so many random inputs, or for so long, in place of the
// tests: -fuzz=5000x. The programs are the test binaries that the same arguments make for a run of
// tests, so nothing more is compiled. They have no coverage to guide them: make fuzz builds with
// it.
const fuzzFlag = "-fuzz="

// cutFuzz cuts the flag from the arguments, and returns its value.
func cutFuzz(args []string) (rest []string, amount string) {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, fuzzFlag) })
	if at < 0 {
		return args, ""
	}
	return slices.Delete(slices.Clone(args), at, at+1), strings.TrimPrefix(args[at], fuzzFlag)
}

// fuzz runs every fuzz test of the packages that args name, one after another, and reports whether
// all of them passed.
func fuzz(ctx context.Context, args []string, amount, binaries string, out io.Writer) bool {
	started := time.Now()
	programs, err := fuzzPrograms(ctx, args, binaries, out)
	if err != nil {
		fmt.Fprintf(out, "building the fuzz tests: %v\n", err)
		return false
	}
	inputs, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		fmt.Fprintf(out, "a folder for inputs: %v\n", err)
		return false
	}
	defer func() { _ = os.RemoveAll(inputs) }() // a rest is the system's to remove
	var passed, failed int
	for _, each := range programs {
		for _, name := range each.names {
			flags := []string{"-test.run=^$", "-test.fuzz=^" + name + "$", "-test.fuzztime=" + amount, "-test.fuzzcachedir=" + inputs}
			cmd := exec.CommandContext(ctx, each.program, flags...) //nolint:gosec // built above
			cmd.Dir, cmd.Env = each.dir, environment()
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
			cmd.WaitDelay = 10 * time.Second
			begun := time.Now()
			text, err := cmd.CombinedOutput()
			if err != nil {
				failed++
				fmt.Fprintf(out, "FAIL %s %s: %v\n%s", short(each.name), name, err, text)
				continue
			}
			passed++
			fmt.Fprintf(out, "ok   %s %s, %s in %.1f s\n", short(each.name), name, amount, time.Since(begun).Seconds())
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, 0 skipped in %v\n", passed, failed, time.Since(started).Round(time.Second))
	return failed == 0 && passed > 0
}

// fuzzed is a package with fuzz tests, and its test binary.
type fuzzed struct {
	name, dir, program string
	names              []string
}

// fuzzPrograms builds the test binaries of all packages that have a fuzz test to run.
func fuzzPrograms(ctx context.Context, args []string, binaries string, out io.Writer) ([]fuzzed, error) {
	of := func(t tests) []string { return t.untagged }
	at := slices.IndexFunc(args, isSelecting)
	if at < 0 {
		of = func(t tests) []string { return append(t.untagged, t.tagged...) }
		at = slices.IndexFunc(args, isTags)
	}
	tags := ""
	if at >= 0 {
		_, tags, _ = strings.Cut(args[at], "=")
	}
	args, chosen, err := selected(ctx, args)
	if err != nil {
		return nil, err
	}
	found, err := testsByTag(ctx, tags, slices.DeleteFunc(slices.Clone(args), isNoPackage))
	if err != nil {
		return nil, err
	}
	var all []fuzzed
	var packages []string
	for name, each := range found {
		names := slices.DeleteFunc(of(each), func(name string) bool { return !strings.HasPrefix(name, "Fuzz") })
		if len(names) > 0 {
			packages = append(packages, name)
			all = append(all, fuzzed{name: name, dir: each.dir, names: names})
		}
	}
	slices.SortFunc(all, func(a, b fuzzed) int { return strings.Compare(a.name, b.name) })
	for _, build := range runs(args, packages, chosen, binaries) {
		args := slices.Concat([]string{"test", "-c"}, raceFlags(build), build)
		cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are those of who runs the tests
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			return nil, err
		}
		dir := build[slices.Index(build, "-o")+1]
		for i, each := range all {
			if slices.Contains(build, each.name) {
				all[i].program = filepath.Join(dir, path.Base(each.name)+".test")
			}
		}
	}
	return all, nil
}
