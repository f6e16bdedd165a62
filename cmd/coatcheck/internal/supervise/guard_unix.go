//go:build unix

package supervise

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// report is a line of JSON for the process that started the guard.
type report struct {
	Group  int    `json:"group,omitempty"`  // the command has begun, in this process group
	Ended  bool   `json:"ended,omitempty"`  // the command and its group have ended
	Code   int    `json:"code,omitempty"`   // exit code; 128 + n: killed by signal n
	Cut    bool   `json:"cut,omitempty"`    // it was stopped before it ended by itself
	Failed string `json:"failed,omitempty"` // it could not be started
}

// Allowance is how long before a window's end a command is dealt with.
type Allowance struct {
	Grace  time.Duration // between SIGTERM and SIGKILL
	Margin time.Duration // between SIGKILL and the end
	Leave  bool          // signals are left to who sends them: that one reaches the command as well
}

// tick is how often a guard looks for changes without a signal, such as a window's new end.
func (a Allowance) tick() time.Duration { return min(a.Margin/5, 100*time.Millisecond) }

// pause is how long to wait for a moment of the boot clock: no longer than until then, since a late
// guard uses up its margin, and a tick at most.
func (a Allowance) pause(until time.Duration) time.Duration {
	return min(max(until-SinceBoot(), 0), a.tick())
}

// ErrNotAGuard means that a process was not started as a guard.
var ErrNotAGuard = errors.New("guard is started by `coatcheck worker run`")

// guard is the process between [Run] and its command, which has the arguments of `coatcheck guard`:
// it is the command's parent, and ends the command when the window ends, even if the process that
// called Run is killed, stopped, or waiting for a silent Redis.
type guard struct {
	allowance Allowance

	// The guard's file descriptors. A line of the lifeline is the number of a signal to pass on, or
	// a new end of the window: 'end' and milliseconds by the boot clock. The end of the pipe, also
	// when the process at its other end is killed, means to stop the command.
	lifeline, reports int

	file  windowFile    // of the command
	first time.Duration // the window's end at first, by the boot clock
	end   atomic.Int64  // as it was told last

	terminal terminal

	line  *bufio.Reader    // the lifeline
	early []syscall.Signal // what it said before the command began

	group   int                 // of the command
	orders  chan syscall.Signal // from the lifeline; closed at its end
	halted  chan syscall.Signal // what has stopped the command's process group for a while
	reaped  chan int            // the command's exit code
	tell    *json.Encoder       // reports
	stopped bool                // SIGTERM was sent
	killed  bool                // SIGKILL was sent
	killAt  time.Duration       // or sent again, by the boot clock
	outcome report
}

// init makes a guard of a process that [Run] has started as one. A guard needs few packages, and
// each package of the program that Go initializes takes time: before main most of them are ready,
// here only those that this package imports and some of Go's own.
func init() { //nolint:gochecknoinits // main comes after the packages that a guard does without
	if len(os.Args) < 2 || os.Args[1] != guardCommand {
		return
	}
	switch err := (&guard{}).start(os.Args[2:]); {
	case errors.Is(err, ErrNotAGuard):
		return // the program says so
	case err != nil:
		fmt.Fprintf(os.Stderr, "coatcheck: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const guardCommand = "guard"

// start runs a guard with the arguments that [startGuard] gives it.
func (g *guard) start(args []string) error {
	flags := flag.NewFlagSet(guardCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&g.lifeline, "lifeline", 0, "file descriptor: signals to pass on, and new ends of the window")
	flags.IntVar(&g.reports, "reports", 0, "file descriptor for what became of the command")
	flags.DurationVar(&g.first, "end", 0, "the window's end at first, by the boot clock")
	flags.StringVar((*string)(&g.file), "file", "", "to be removed in the end")
	flags.DurationVar(&g.allowance.Grace, "grace", 0, "between SIGTERM and SIGKILL")
	flags.DurationVar(&g.allowance.Margin, "margin", time.Second, "between SIGKILL and the window's end")
	err := flags.Parse(args)
	if err != nil || flags.NArg() == 0 || min(g.lifeline, g.reports) <= 2 || g.first <= 0 || g.allowance.Margin <= 0 {
		return ErrNotAGuard
	}
	return g.run(flags.Args())
}

// run runs a command until it or its window ends. It is called once in a process, whose signals,
// terminal and orphans it takes over. The error is the reason why the guard could not report the
// command's end.
func (g *guard) run(command []string) error {
	g.end.Store(int64(g.first))
	// the command dies with the thread that starts it, so that one must last as long as the guard
	runtime.LockOSThread()
	keepIgnored()
	ignored := make(chan os.Signal, 1)
	// for the command, which gets them by the lifeline. Caught, since ignoring is inherited
	signal.Notify(ignored, Signals()...)
	for _, fd := range []int{g.lifeline, g.reports} {
		syscall.CloseOnExec(fd)
	}
	g.tell = json.NewEncoder(os.NewFile(uintptr(g.reports), "reports"))
	defer g.file.remove()
	if err := g.begin(command); err != nil {
		return g.tell.Encode(report{Failed: err.Error(), Cut: errors.Is(err, errTooLate)})
	}
	told := g.tell.Encode(report{Group: g.group})
	g.watch() // in any case: if the reports are not read any more, the lifeline has ended, too
	return errors.Join(told, g.tell.Encode(g.outcome))
}

// errTooLate means that the lease was lost, not that there is anything wrong with the command.
var errTooLate = errors.New("its time was over before the command began")

// begin starts the command, unless its time is over.
func (g *guard) begin(args []string) error {
	if err := g.catchUp(); err != nil {
		return err
	}
	if g.isDue() {
		return errTooLate
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	sys := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(sys)
	g.terminal = openTerminal()
	how := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err := syscall.ForkExec(path, args, how)
	if errors.Is(err, syscall.ENOEXEC) && isText(path) { // a script that names no shell
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", path}, args[1:]...), how)
	}
	if err != nil {
		return &os.PathError{Op: "fork/exec", Path: path, Err: err}
	}
	g.group = pid
	g.orders, g.halted, g.reaped = make(chan syscall.Signal), make(chan syscall.Signal), make(chan int, 1)
	go g.listen()
	go g.reap()
	return nil
}

// isText reports whether a file is no program of another machine: such a program has a NUL in its
// first bytes.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	first := make([]byte, 80)
	n, _ := io.ReadFull(file, first)
	return !bytes.Contains(first[:n], []byte{0})
}

// catchUp reads the lifeline where the window seems over: its end may have moved during the start.
func (g *guard) catchUp() error {
	if err := syscall.SetNonblock(g.lifeline, true); err != nil {
		return err
	}
	file := os.NewFile(uintptr(g.lifeline), "lifeline")
	g.line = bufio.NewReader(file)
	if err := file.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	for g.isDue() {
		text, err := g.line.ReadString('\n')
		if err != nil {
			break // said nothing more: listen finds an end of the lifeline again
		}
		if order, ok := g.heed(text); ok {
			g.early = append(g.early, order)
		}
	}
	return file.SetReadDeadline(time.Time{})
}

// listen reads the lifeline to its end.
func (g *guard) listen() {
	defer close(g.orders)
	for _, order := range g.early {
		g.orders <- order
	}
	for {
		text, err := g.line.ReadString('\n')
		if err != nil {
			return
		}
		if order, ok := g.heed(text); ok {
			g.orders <- order
		}
	}
}

// heed takes a line of the lifeline: a new end of the window, or a signal for the command.
func (g *guard) heed(line string) (order syscall.Signal, ok bool) {
	end, moved := strings.CutPrefix(strings.TrimSuffix(line, "\n"), movedEnd)
	number, err := strconv.ParseInt(end, 10, 64)
	if err == nil && moved {
		g.end.Store(int64(time.Duration(number) * time.Millisecond))
	}
	return syscall.Signal(number), err == nil && !moved
}

// movedEnd begins a line of the lifeline that has a window's new end.
const movedEnd = "end "

// reap waits for all children: the command, and orphans that were adopted.
func (g *guard) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // there are no more
		case status.Stopped():
			g.halted <- status.StopSignal()
		case pid == g.group:
			g.reaped <- exitCode(status)
		}
	}
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// due is when to stop the command and, after that, when to kill it, by the boot clock.
func (g *guard) due() time.Duration {
	last := time.Duration(g.end.Load()) - g.allowance.Margin
	switch {
	case !g.stopped:
		return last - g.allowance.Grace
	case g.killed:
		return g.killAt
	}
	return min(g.killAt, last)
}

func (g *guard) isDue() bool { return SinceBoot() >= g.due() }

// watch returns when the command and all of its group have ended.
func (g *guard) watch() {
	for {
		select {
		case order, open := <-g.orders:
			if open {
				g.pass(order)
				break
			}
			g.orders = nil
			g.cut()
		case by := <-g.halted:
			g.terminal.ask(g.group, by)
		case g.outcome.Code = <-g.reaped:
			g.outcome.Ended = true
			g.terminal.takeBack()
		case <-time.After(g.allowance.pause(g.due())):
			g.terminal.lend(g.group)
		}
		if !g.stopped && g.isDue() {
			g.cut()
		}
		if g.outcome.Ended {
			g.stop() // what it has left behind
			if errors.Is(syscall.Kill(-g.group, 0), syscall.ESRCH) {
				return
			}
		}
		if g.stopped && g.isDue() {
			g.kill()
		}
	}
}

// pass hands a signal on: an interrupt to the group, as a terminal does, others to the command.
func (g *guard) pass(s syscall.Signal) {
	to := g.group
	if s == syscall.SIGINT {
		to = -g.group
	}
	if !g.outcome.Ended {
		_ = syscall.Kill(to, s) // it may be ending
	}
}

// cut stops a command that has not ended by itself.
func (g *guard) cut() {
	if !g.outcome.Ended {
		g.outcome.Cut = true
	}
	g.stop()
}

// stop asks the group to end. It resumes stopped processes, so that they get the signal.
func (g *guard) stop() {
	if g.stopped {
		return
	}
	g.stopped, g.killAt = true, SinceBoot()+g.allowance.Grace
	_ = syscall.Kill(-g.group, syscall.SIGTERM)
	_ = syscall.Kill(-g.group, syscall.SIGCONT)
}

func (g *guard) kill() {
	g.killed, g.killAt = true, SinceBoot()+g.allowance.tick()
	_ = syscall.Kill(-g.group, syscall.SIGKILL)
}

// interruptIgnored reports whether SIGINT was ignored when this process began, as a shell without
// job control does for background processes.
var interruptIgnored = signal.Ignored(syscall.SIGINT)

// Signals are the signals that go on to the command. SIGHUP stays ignored where it is, as under
// nohup, and SIGINT where it was at the start; so they are for the command. It has to be called
// before they are caught.
func Signals() []os.Signal {
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
	if !interruptIgnored {
		signals = append(signals, syscall.SIGINT)
	}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// keepIgnored ignores SIGINT again where it was ignored at the start: Main has caught it.
func keepIgnored() {
	if interruptIgnored {
		signal.Ignore(syscall.SIGINT)
	}
}

// UntilQuit returns a context that also ends with SIGQUIT, for the time before a command runs.
func UntilQuit(ctx context.Context) (context.Context, context.CancelFunc) {
	keepIgnored()
	return signal.NotifyContext(ctx, syscall.SIGQUIT)
}
