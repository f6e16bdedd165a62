package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// launchLocked starts the process until it answers. On an error the process is gone again.
func (s *Server) launchLocked() error {
	if s.ended {
		return fmt.Errorf("%s: the test has ended", s.Addr())
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()

	words := slices.Concat(s.options.at.Enter, []string{s.binary, s.configFile()}, s.options.args)
	if s.options.sentinel {
		words = append(words, "--sentinel")
	}
	cmd := exec.Command(words[0], words[1:]...)
	// The log is what the server prints, so that it holds complaints about options, too.
	cmd.Stdout, cmd.Stderr = log, log
	if _, outlives := s.t.(*binary); outlives {
		return s.launchTied(cmd)
	}
	p, err := proctest.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.process, s.paused = p, false
	if err := s.awaitReady(p); err != nil {
		p.Kill()
		return fmt.Errorf("%s on %s: %w; %s", s.binary, s.Addr(), err, proctest.LogTail(s.logFile()))
	}
	return nil
}

// launchTied is launchLocked for a server that ends with the test binary.
func (s *Server) launchTied(cmd *exec.Cmd) error {
	p, err := proctest.StartTied(cmd, s.dir)
	if err != nil {
		return err
	}
	s.tied = p
	err = await(s.t, startLimit, func(ctx context.Context) error { return s.probe(ctx, p.Pid()) })
	if err != nil {
		err = fmt.Errorf("%s on %s: does not answer: %w; %s", s.binary, s.Addr(), err, proctest.LogTail(s.logFile()))
		p.End()
	}
	return err
}

// awaitReady returns nil once p answers, or the reason why it will not.
func (s *Server) awaitReady(p *proctest.Process) error {
	ctx, cancel := within(s.t, startLimit)
	defer cancel()
	for {
		err := s.probe(ctx, p.Pid())
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			if strings.Contains(proctest.LogTail(s.logFile()), "ddress already in use") {
				return errPortTaken
			}
			return errors.Join(errors.New("ended before it answered"), p.Err())
		case <-ctx.Done():
			return fmt.Errorf("does not answer: %w", err)
		case <-time.After(pollEvery):
		}
	}
}

// probe returns nil when process pid answers PING on the server's address. It asks for the process
// id since another process that had got the port might be a Redis as well. It speaks to the socket
// itself: a go-redis client would log every refused dial.
func (s *Server) probe(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}

	commands := "PING\r\nINFO server\r\n"
	if s.password != "" {
		commands = "AUTH " + strconv.Quote(s.password) + "\r\n" + commands
	}
	if _, err := conn.Write([]byte(commands)); err != nil {
		return err
	}
	pong := false
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		line := lines.Text()
		switch id, isID := strings.CutPrefix(line, "process_id:"); {
		case strings.HasPrefix(line, "-"):
			return errors.New(line[1:])
		case line == "+PONG":
			pong = true
		case isID && pong && id == strconv.Itoa(pid):
			return nil
		case isID:
			return fmt.Errorf("process %s answers in place of %d", id, pid)
		}
	}
	return errors.Join(errors.New("no full answer to PING and INFO"), lines.Err())
}
