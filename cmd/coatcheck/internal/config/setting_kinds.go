package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
)

// Text is a setting that takes any text.
func Text(name, value, unit, help string, into *string) *Setting {
	return &Setting{Name: name, Value: value, Unit: unit, Help: help, Parse: func(s string) error {
		*into = s
		return nil
	}}
}

// Checked is a setting that takes the texts that check does; empty is none.
func Checked(name, unit, help string, check func(string) error, into *string) *Setting {
	return &Setting{Name: name, Unit: unit, Help: help, Parse: func(s string) error {
		*into = s
		if s == Unsaid {
			return nil
		}
		return check(s)
	}}
}

// Optional lets a setting be empty, with the meaning in its help.
func Optional(s *Setting) *Setting {
	parse := s.Parse
	s.Parse = func(text string) error {
		if text != "" {
			return parse(text)
		}
		return nil
	}
	return s
}

// Hot marks a setting whose new value in the file is taken on SIGHUP.
func Hot(s *Setting) *Setting {
	s.Hot = true
	return s
}

// Redacted hides what is secret in a setting's value.
func Redacted(s *Setting, redact func(string) string) *Setting {
	s.Redact = redact
	return s
}

// secrets is a list of values that are shown in part; bad stands for one that cannot be read.
func secrets[T any](name, unit, help, bad string, parse func(string) ([]T, error), shown func(T) string, into *[]T) *Setting {
	redact := func(value string) string {
		found, err := parse(value)
		if err != nil {
			return bad
		}
		var texts []string
		for _, one := range found {
			texts = append(texts, shown(one))
		}
		return strings.Join(texts, ",")
	}
	return &Setting{Name: name, Unit: unit, Help: help, Redact: redact, Parse: func(s string) (err error) {
		*into, err = parse(s)
		return err
	}}
}

// Keyring is a list of keys, id:secret each. Only the ids are ever shown.
func Keyring(name, help string, into *[]idempotency.Secret) *Setting {
	return secrets(name, "id:secret,…", help, "(not keys)", idempotency.ParseSecrets,
		func(key idempotency.Secret) string { return key.ID + ":…" }, into)
}

// records is a list of records of API keys. Only the ids are ever shown.
func records(name, help string, into *[]access.Record) *Setting {
	return secrets(name, "record,…", help, "(not records)", access.ParseRecords,
		func(record access.Record) string { return record.ID + ":…" }, into)
}

// Headers is a list of names of request headers; empty is none.
func Headers(name, value, help string, into *[]string) *Setting {
	return &Setting{Name: name, Value: value, Unit: "header,…", Help: help, Parse: func(s string) error {
		return readList(s, into, func(header string) (string, error) {
			if !names.Header.MatchString(header) {
				return "", fmt.Errorf("%q is not the name of a header", header)
			}
			return http.CanonicalHeaderKey(header), nil
		})
	}}
}

// words is a list of texts; empty is nil.
func words(name, unit, help string, into *[]string) *Setting {
	return &Setting{Name: name, Unit: unit, Help: help, Parse: func(s string) error {
		return readList(s, into, func(word string) (string, error) { return word, nil })
	}}
}

// algorithms is a list of the signatures of tokens; empty is nil.
func algorithms(name, help string, into *[]string) *Setting {
	return &Setting{Name: name, Unit: "alg,…", Help: help + ": " + strings.Join(jwtprincipal.Algorithms(), ", "), Parse: func(s string) error {
		return readList(s, into, func(one string) (string, error) {
			if !slices.Contains(jwtprincipal.Algorithms(), one) {
				return "", fmt.Errorf("%q is not one of %s", one, strings.Join(jwtprincipal.Algorithms(), ", "))
			}
			return one, nil
		})
	}}
}

// readList reads values with commas between them; empty is none.
func readList(text string, into *[]string, read func(part string) (string, error)) error {
	*into = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		value, err := read(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*into = append(*into, value)
	}
	return nil
}

// Named is a name as the HTTP interface takes it.
func Named(name, value, help string, into *string) *Setting {
	return &Setting{Name: name, Value: value, Unit: "name", Help: help, Parse: func(s string) error {
		*into = s
		return checkName(s)
	}}
}

func checkName(text string) error {
	if !names.Valid(text) {
		return fmt.Errorf("%q is not a name: %s", text, names.Rule)
	}
	return nil
}

func poolNames(name, help string, into *[]string) *Setting {
	return &Setting{Name: name, Unit: "names", Help: help, Parse: func(text string) error {
		return readList(text, into, func(part string) (string, error) { return part, checkName(part) })
	}}
}

// Address is host:port, of which the host can be empty.
func Address(name, value, help string, into *string) *Setting {
	return &Setting{Name: name, Value: value, Unit: "host:port", Help: help, Parse: func(s string) error {
		*into = s
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("%q is not host:port, such as %s", s, cmp.Or(value, "127.0.0.1:9091"))
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("port %q of host %q is not a number from 0 to 65535", port, host)
		}
		return nil
	}}
}

// Toggle is true or false, and false by default; the flag alone means true.
func Toggle(name, help string, into *bool) *Setting { return Toggled(name, "false", help, into) }

// Toggled is a toggle with another default.
func Toggled(name, value, help string, into *bool) *Setting {
	return &Setting{Name: name, Value: value, Unit: "true or false", Kind: "bool", Help: help, Toggle: true,
		Parse: func(s string) (err error) {
			if *into, err = strconv.ParseBool(s); err != nil {
				return fmt.Errorf("%q is neither true nor false", s)
			}
			return nil
		}}
}

// Number is a whole number within bounds, both included.
func Number[N int | int64](name, value string, least, most int64, unit, help string, into *N) *Setting {
	return &Setting{Name: name, Value: value, Unit: unit, Kind: "int", Help: help, Parse: func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
		}
		*into = N(n)
		return nil
	}}
}

// NumberOrAll is a Number, or the word all, which stands for a number out of its bounds.
func NumberOrAll(name, value string, least, most int64, all int, unit, help string, into *int) *Setting {
	number := Number(name, value, least, most, unit, help, into)
	number.Kind = ""
	parse := number.Parse
	number.Parse = func(s string) error {
		if s == "all" {
			*into = all
			return nil
		}
		if err := parse(s); err != nil {
			return fmt.Errorf("%w, or all", err)
		}
		return nil
	}
	return number
}

// Span is a duration within bounds, both included.
func Span(name, value string, least, most time.Duration, help string, into *time.Duration) *Setting {
	return &Setting{Name: name, Value: value, Unit: "duration", Help: help, Parse: func(s string) error {
		d, err := ParseDuration(s)
		if err != nil || d < least || d > most {
			return fmt.Errorf("%q is not a duration from %s to %s", s, spelled(least), spelled(most))
		}
		*into = d
		return nil
	}}
}

// spelled is a duration as people write it: 2m, not 2m0s.
func spelled(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Choice is one of a few words.
func Choice[T ~string](name string, value T, from []T, help string, into *T) *Setting {
	var words []string
	for _, word := range from {
		words = append(words, string(word))
	}
	return &Setting{Name: name, Value: string(value), Unit: strings.Join(words, " or "), Choices: words, Help: help,
		Parse: func(s string) error {
			if !slices.Contains(words, s) {
				return fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
			}
			*into = T(s)
			return nil
		}}
}

// Level is that of a log.
func Level(name, value, help string, into *slog.Level) *Setting {
	levels := []string{"debug", "info", "warn", "error"}
	return &Setting{Name: name, Value: value, Unit: "level", Choices: levels, Help: help, Parse: func(s string) error {
		if err := into.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("%q is not a level: debug, info, warn or error", s)
		}
		return nil
	}}
}

// Rate is how often something may happen; empty = without limit.
func Rate(name, help string, into *access.Rate) *Setting {
	return &Setting{Name: name, Unit: "n/s, n/m or n/h", Help: help, Parse: func(s string) error { return into.UnmarshalText([]byte(s)) }}
}

// origins is a list of origins of pages, each as a browser sends it.
func origins(name, help string, into *[]string) *Setting {
	return &Setting{Name: name, Unit: "origin,…", Help: help, Parse: func(s string) error {
		*into = nil
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ' ' }) {
			u, err := url.Parse(part)
			whole := err == nil && u.Host != "" && u.Scheme+"://"+u.Host == part && !strings.Contains(part, "*")
			if !whole || u.Scheme != "https" && u.Scheme != "http" {
				return errors.New("an origin is scheme, host and port alone, such as https://shop.example; there is no * for all: each that " +
					"may ask is named")
			}
			if !slices.Contains(*into, part) {
				*into = append(*into, part)
			}
		}
		return nil
	}}
}

// HostNames is a list of names under which clients ask.
func HostNames(name, help string, into *[]string) *Setting {
	return &Setting{Name: name, Unit: "name,…", Help: help, Parse: func(s string) error {
		*into = nil
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ' ' }) {
			if err := frontdoor.CheckHost(part); err != nil {
				return fmt.Errorf("%q: %w", part, err)
			}
			*into = append(*into, part)
		}
		return nil
	}}
}

// Hidden is a setting whose value is never shown.
func Hidden(s *Setting) *Setting {
	return Redacted(s, func(value string) string {
		if value == "" {
			return ""
		}
		return "(set)"
	})
}

// part is a number from 0 to 1; empty = unsaid.
func part(name, help string, into **float64) *Setting {
	return &Setting{Name: name, Unit: "0 to 1", Help: help, Parse: func(s string) error {
		*into = nil
		if s == "" {
			return nil
		}
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= 0 && n <= 1) { // NaN is neither
			return fmt.Errorf("%q is not a number from 0 to 1, such as 0.1", s)
		}
		*into = &n
		return nil
	}}
}

// Unsaid is the value of a flag that was left out.
const Unsaid = ""
