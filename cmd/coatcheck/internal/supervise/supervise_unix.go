//go:build unix

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// Lease is a lease that is held for a command.
type Lease interface {
	Context() context.Context // ends when the lease is lost, with the cause
	Window() (Window, error)  // until when it lasts, as far as is known now
	TellsEnd() bool           // the command is told the end of the window, in a file
	// Environment is the command's, which finds the end of the window in the file; "" = none
	Environment(file string) []string
	// Gone reports whether the lease, lost for that cause, can be another's before its window ends
	Gone(cause error) bool
	Lost(cause error) error // what to say when the command was stopped for that
}

// ErrNotStarted means that the command could not be started.
var ErrNotStarted = errors.New("the command could not be started")

// leastMargin is longer than a busy machine delays a process that is ready to run.
const leastMargin = 200 * time.Millisecond

// Allowed is the margin at a window's end: small, so that renewals may fail a few times before.
func Allowed(ttl, grace time.Duration) Allowance {
	return Allowance{Grace: min(grace, ttl/4), Margin: min(max(ttl/10, leastMargin), time.Second)}
}

// End is how a command ended.
type End struct {
	Began bool // or may have begun
	Code  int  // its exit code: 128 and the number of the signal that killed it
	Told  bool // a signal went on to it, or was left to who had sent it
	// the latest time by the server's clock that the command can have computed from its file; the
	// zero time if it may not have ended
	Last time.Time
}

// Run runs a command to its end. It fails if the command did not begin or did not end by itself,
// with the error of the lease's Lost if the lease ended. Signals go on to the command. The warnings
// name what the command does not have.
func Run(h Lease, command []string, a Allowance, signals <-chan os.Signal, warnings io.Writer) (end End, err error) {
	s := &supervision{Lease: h, allowance: a, signals: signals, warnings: warnings}
	if s.window, err = h.Window(); err != nil {
		return end, err
	}
	s.origin = s.window.origin()
	if h.TellsEnd() {
		s.file, err = newWindowFile(s.window)
		s.warn(err)
	}
	defer s.file.remove()
	// Ctrl-Z does nothing: no renewal would be sent, and nothing could tell the shell that the
	// command has stopped. Caught rather than ignored, since a command inherits that
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	defer signal.Stop(stops)
	if err := adoptOrphans(); err != nil {
		return end, err
	}
	// a variable that this process has itself, as within another lock run, is there once
	env := (&exec.Cmd{Env: h.Environment(string(s.file))}).Environ()
	if s.guarded, err = startGuard(command, env, s.file, s.window.Boot, s.allowance); err != nil {
		return end, err
	}
	s.watch()
	end.Began, end.Told = s.outcome.Failed == "", s.told
	if s.outcome.Ended {
		end.Last = s.origin.Add(SinceBoot())
	}
	end.Code, err = s.verdict()
	return end, err
}

// supervision is a command that runs under a guard, and the lease for it. The guard stops the
// command; here the guard is watched.
type supervision struct {
	Lease
	*guarded

	file      windowFile
	allowance Allowance
	signals   <-chan os.Signal
	warnings  io.Writer

	window  Window    // as the guard knows it
	origin  time.Time // the latest of all windows that were written for the command
	warned  bool      // the last write of the file failed
	group   int       // of the command; 0 = not known yet
	outcome report
	cause   error // why the lease was lost
	over    bool  // the guard has ended when the command's time was over
	killed  bool  // the command was killed from here
	told    bool  // a signal was passed on, or left to who has sent it
}

// watch returns when the guard has ended, and the command with it.
func (s *supervision) watch() {
	defer s.stop()
	over := false // another may have the lease already
	for lost := s.Context().Done(); ; {
		select {
		case number := <-s.signals:
			if !s.allowance.Leave {
				s.pass(number)
			}
			s.told = true
		case <-lost:
			lost, s.cause = nil, context.Cause(s.Context())
			if over = s.Gone(s.cause); !over {
				s.stop()
			}
		case r := <-s.reports:
			s.hear(r)
		case <-s.ended:
			s.over = SinceBoot() >= s.window.Boot-s.allowance.Margin-s.allowance.Grace
			s.reap()
			return
		case <-time.After(s.pause()):
		}
		s.refresh()
		if over || SinceBoot() >= s.due() {
			s.kill()
		}
	}
}

// due is when this process kills the command, by the boot clock, if the guard has not.
func (s *supervision) due() time.Duration { return s.window.Boot - s.allowance.Margin/2 }

// pause is how long to wait for that moment.
func (s *supervision) pause() time.Duration {
	if s.killed {
		return s.allowance.tick() // and then once more
	}
	return s.allowance.pause(s.due())
}

func (s *supervision) hear(r report) {
	if r.Group != 0 {
		s.group = r.Group
		return
	}
	s.outcome = r
}

// refresh passes the window's end on when it has moved.
func (s *supervision) refresh() {
	w, err := s.Window()
	if err != nil || !w.Server.After(s.window.Server) || s.move(w.Boot) != nil {
		return // the command ends with the window that the guard knows
	}
	s.window = w
	if origin := w.origin(); origin.After(s.origin) {
		s.origin = origin
	}
	if s.file == "" {
		return
	}
	if err := s.file.write(w); err == nil || s.running() {
		s.warn(err)
	}
}

// running reports whether there is a command that can lack its file. The guard removes the file
// once the command and its group have ended.
func (s *supervision) running() bool {
	return s.group != 0 && !errors.Is(syscall.Kill(-s.group, 0), syscall.ESRCH)
}

// warn says, once for each series of failures, that the end of the window could not be written for
// the command. The command goes on: an end that is too early makes it stop too soon.
func (s *supervision) warn(err error) {
	if err != nil && !s.warned {
		fmt.Fprintf(s.warnings, "coatcheck: warning: the command runs, but the file with the end of its lease cannot be written: %v\n", err)
	}
	s.warned = err != nil
}

// kill ends the command, and the guard that did not.
func (s *supervision) kill() {
	s.killed = true
	if s.group != 0 {
		_ = syscall.Kill(-s.group, syscall.SIGKILL)
	}
	_ = s.process.Kill() // Linux kills the command with it, known or not
}

// reap reads the guard's last report. After a killed guard it kills the command, in the window.
func (s *supervision) reap() {
	for len(s.reports) > 0 {
		s.hear(<-s.reports)
	}
	if s.outcome.Ended || s.outcome.Failed != "" || s.group == 0 {
		return
	}
	for SinceBoot() < s.window.Boot && !errors.Is(syscall.Kill(-s.group, syscall.SIGKILL), syscall.ESRCH) {
		// what the guard had adopted is ours now
		if pid, _ := syscall.Wait4(-s.group, nil, syscall.WNOHANG, nil); pid <= 0 {
			time.Sleep(s.allowance.tick())
		}
	}
}

// wasCut reports whether the command was stopped. Killed from here, it may look ended to the guard.
func (s *supervision) wasCut() bool {
	return s.outcome.Cut || s.killed && s.outcome.Code == 128+int(syscall.SIGKILL)
}

// verdict is the command's exit code, or why it did not end by itself.
func (s *supervision) verdict() (code int, err error) {
	switch {
	case s.outcome.Failed != "" && !s.outcome.Cut:
		return 0, fmt.Errorf("%w: %s", ErrNotStarted, s.outcome.Failed)
	case s.outcome.Ended && !s.wasCut():
		return s.outcome.Code, nil
	case s.cause == nil && !s.outcome.Cut && !s.over:
		return 0, errors.New("the command was killed, since the process that guards it was")
	case s.cause == nil:
		s.cause = errors.New(cmp.Or(s.outcome.Failed, "no renewal was confirmed in time"))
	}
	return 0, s.Lost(s.cause)
}
