package access

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
)

// Record is the rights of a key. It holds no secret.
type Record struct {
	ID        string    `json:"id"`
	Hash      Hash      `json:"sha256"`
	Principal string    `json:"principal"`
	Role      Role      `json:"role"`
	Names     Names     `json:"prefixes,omitempty"` // none = all
	Rate      Rate      `json:"rate,omitzero"`      // none = as the service says for all
	Burst     int       `json:"burst,omitempty"`
	NotAfter  time.Time `json:"not_after,omitzero"` // zero = for ever
	Label     string    `json:"label,omitempty"`    // for people
}

var (
	principalForm = names.NewForm("A-Za-z0-9._:~@/+-", 1, 200)
	labelForm     = lazyregexp.New(`^[^\x00-\x1f\x7f]*$`)
)

// Check finds every fault of a record.
func (r Record) Check() error {
	var faults []error
	for _, one := range r.faults() {
		faults = append(faults, errors.New(one.field+": "+one.text))
	}
	return errors.Join(faults...)
}

type fieldFault struct{ field, text string }

// faults finds all that is wrong with a record, by field.
func (r Record) faults() (found []fieldFault) {
	fault := func(wrong bool, field, text string) {
		if wrong {
			found = append(found, fieldFault{field, text})
		}
	}
	fault(!idForm.MatchString(r.ID), "id", "1 to 32 characters of a–z 0–9")
	fault(r.Hash == Hash{}, "sha256", "missing: the SHA-256 of the key's secret, as coatcheck key hash prints it")
	fault(!principalForm.MatchString(r.Principal) || strings.HasPrefix(r.Principal, ":"), "principal", principalRule)
	fault(r.Role < Read || r.Role > Admin, "role", errRole.Error())
	for _, text := range r.Names.check() {
		fault(true, "prefixes", text)
	}
	fault(r.Burst < 0 || r.Burst > maxBurst, "burst", fmt.Sprintf("1 to %d requests", maxBurst))
	fault(r.Burst > 0 && r.Rate.N == 0, "burst", "only with a rate")
	fault(!labelForm().MatchString(r.Label) || utf8.RuneCountInString(r.Label) > 200, "label", "up to 200 characters on one line")
	return found
}

const principalRule = "1 to 200 characters of A–Z a–z 0–9 . _ : ~ @ / + -"

func (r Record) expired(now time.Time) bool { return !r.NotAfter.IsZero() && !now.Before(r.NotAfter) }

func (r Record) caller() Caller {
	return Caller{Principal: r.Principal, Role: r.Role, Names: r.Names, Limit: Limit{r.Rate, r.Burst}, KeyID: r.ID}
}

// ParseRecords reads records that are written by hand into one line, separated by commas or line
// ends, each id:role:principal:names:sha256, where names are separated by | and none are all:
//
//	k7x2:use:orders:orders:*|bills:*:9f86d0…,ops1:admin:ops::60303a…
//
// An empty text has no records; one of separators alone is a fault. A principal has no colon here.
// A record with a rate, an end or a label has to stand in a file. The error lists every fault, and
// quotes no more of a record than its id.
func ParseRecords(text string) (records []Record, err error) {
	var faults []error
	seen := map[string]bool{}
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		record, err := parseRecord(line)
		if err == nil {
			err = record.Check()
		}
		if err == nil && seen[record.ID] {
			err = errors.New("id: there are two of it")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("record %d: %s", len(records)+1, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		seen[record.ID] = true
		records = append(records, record)
	}
	if text != "" && len(records) == 0 {
		return nil, errors.New("there is no record in it, so that no caller would be asked for a key: id:role:principal:names:sha256, " +
			"or nothing at all")
	}
	return records, errors.Join(faults...)
}

func parseRecord(line string) (record Record, err error) {
	parts := strings.SplitN(line, ":", 4)
	if len(parts) < 4 {
		return record, errors.New("a record is id:role:principal:names:sha256")
	}
	last := strings.LastIndex(parts[3], ":")
	if last < 0 {
		return record, errors.New("a record is id:role:principal:names:sha256; without names two colons stand before the hash")
	}
	record.ID, record.Principal = parts[0], parts[2]
	var roleFault, hashFault error
	if record.Role, roleFault = ParseRole(parts[1]); roleFault != nil {
		roleFault = fmt.Errorf("role: %w", roleFault)
		record.Role = Read // told once
	}
	if record.Hash, hashFault = ParseHash(parts[3][last+1:]); hashFault != nil {
		hashFault = fmt.Errorf("sha256: %w", hashFault)
	}
	if names := parts[3][:last]; names != "" {
		record.Names = strings.Split(names, "|")
	}
	return record, errors.Join(roleFault, hashFault)
}

// Line is the record as ParseRecords reads it; ok is false where that form cannot hold all of it.
func (r Record) Line() (line string, ok bool) {
	ok = r.Rate.N == 0 && r.NotAfter.IsZero() && !strings.Contains(r.Principal, ":")
	return strings.Join([]string{r.ID, r.Role.String(), r.Principal, strings.Join(r.Names, "|"), r.Hash.String()}, ":"), ok
}
