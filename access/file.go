package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// watched is what is known of the file on disk.
type watched struct {
	tried   string // version that was read last, well or badly
	version string // that the last look saw
	missed  string // why it could not be read last; "" = it was
}

const maxFile = 4 << 20 // bytes

// ReadFile reads a file of keys, certificates and what those may do who show nothing. The error
// tells every fault on a line of its own, with the file's line. exposed tells that everybody on
// this machine may read it.
func ReadFile(path string) (read Set, exposed bool, err error) {
	text, exposed, err := load(path)
	if err == nil {
		read, err = Parse(text)
	}
	if err != nil {
		return Set{}, exposed, inFile(path, err)
	}
	return read, exposed, nil
}

// inFile says with each fault which file it is in.
func inFile(path string, err error) error {
	if faults, ok := errors.AsType[*Faults](err); ok {
		return &Faults{path, faults.All}
	}
	return err
}

func load(path string) (text []byte, exposed bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	text, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: a file of keys has up to %d bytes", path, maxFile)
	}
	return text, about.Mode().Perm()&0o004 != 0, err
}

func versionOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// readFileLocked reads the file and, if it has no fault, takes what it says.
func (p *Policy) readFileLocked() error {
	if p.config.File == "" {
		return nil
	}
	text, exposed, err := load(p.config.File)
	if err != nil {
		return p.keepLocked("", err)
	}
	return p.takeLocked(text, exposed)
}

func (p *Policy) takeLocked(text []byte, exposed bool) error {
	version := versionOf(text)
	first := p.seen.tried == ""
	p.seen.tried, p.seen.missed = version, ""
	read, err := Parse(text)
	if err != nil {
		return p.keepLocked(version, inFile(p.config.File, err))
	}
	p.file, p.wrong = read, nil
	if exposed && first {
		p.log.Warn("everybody on this machine can read the file of keys; it holds no secret, but tells who may do what: chmod o-r", "file", p.config.File)
	}
	p.log.Info("keys are in force", "file", p.config.File, "keys", len(read.Keys), "certificates", len(read.Certificates), "version", version)
	return nil
}

// keepLocked keeps what is in force, and tells why.
func (p *Policy) keepLocked(version string, err error) error {
	p.wrong = []string{err.Error()}
	if faults, ok := errors.AsType[*Faults](err); ok {
		p.wrong = faults.lines()
	}
	for _, fault := range p.wrong {
		p.log.Error("the file of keys has a fault; what was read before stays in force", "fault", fault, "version", version)
	}
	return err
}

// lookAtFileLocked takes what the file says if it is new and the same at two looks, so that one
// that is just being written is not taken for a shorter one.
func (p *Policy) lookAtFileLocked() {
	if p.config.File == "" {
		return
	}
	text, exposed, err := load(p.config.File)
	if err != nil {
		if p.seen.missed != err.Error() {
			p.seen.missed, p.seen.version = err.Error(), ""
			_ = p.keepLocked("", err) // it is logged
		}
		return
	}
	version := versionOf(text)
	still := version == p.seen.version
	p.seen.version = version
	if still && (version != p.seen.tried || p.seen.missed != "") {
		_ = p.takeLocked(text, exposed) // it is logged
	}
}
