//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// startGuard starts the guard of a command, whose window ends then.
func startGuard(args []string, env []string, file windowFile, end time.Duration, a Allowance) (*guarded, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	line, order, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	told, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, line.Close(), order.Close())
	}
	argv := append([]string{"coatcheck", "guard", "--end", end.String(), "--file", string(file), "--grace", a.Grace.String(), "--margin", a.Margin.String(), "--"}, args...)
	process, err := os.StartProcess(path, argv, &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, line, out}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err = errors.Join(err, line.Close(), out.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("the command's guard: %w", err), order.Close(), told.Close())
	}
	g := &guarded{process: process, order: order, reports: make(chan report, 2), ended: make(chan struct{})}
	go g.await(told)
	return g, nil
}

// guarded is a command under a guard, for the process that started it.
type guarded struct {
	process *os.Process // the guard
	order   *os.File    // its lifeline
	reports chan report
	ended   chan struct{} // closed when the guard has ended, and its reports are read
}

// await reads the guard's reports until it ends.
func (g *guarded) await(told *os.File) {
	for lines := json.NewDecoder(told); ; {
		var r report
		if lines.Decode(&r) != nil {
			break
		}
		g.reports <- r
	}
	_ = told.Close()
	_, _ = g.process.Wait() // its reports have said all; without them it was killed
	close(g.ended)
}

func (g *guarded) pass(s os.Signal) {
	_ = g.say(fmt.Sprintf("%d\n", s)) // the guard may have ended
}

func (g *guarded) move(end time.Duration) error {
	return g.say(fmt.Sprintf(movedEnd+"%d\n", end.Milliseconds()))
}

// say writes a line to the guard, whole or not at all.
func (g *guarded) say(line string) error {
	// a guard that is stopped reads nothing
	if err := g.order.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	_, err := g.order.WriteString(line)
	return err
}

func (g *guarded) stop() { _ = g.order.Close() }
