package config

import (
	"errors"
	"net/url"
	"strings"

	"github.com/coatcheck/coatcheck/segment"
)

var sqlSchemes = map[string]segment.Dialect{
	"mysql": segment.DialectMySQL, "mariadb": segment.DialectMySQL,
	"postgres": segment.DialectPostgreSQL, "postgresql": segment.DialectPostgreSQL,
}

// ParseSQL takes the URL of a database apart. The error holds nothing of it.
func ParseSQL(text string) (*url.URL, segment.Dialect, error) {
	const want = "such as mysql://user:password@host:3306/database or postgres://user:password@host:5432/database; what is not a letter " +
		"or a digit is percent-encoded in user and password"
	target, err := url.Parse(text)
	if err != nil {
		return nil, "", errors.New("not a URL " + want) // its own text would quote the password
	}
	dialect, known := sqlSchemes[target.Scheme]
	switch {
	case !known || target.Opaque != "":
		return nil, "", errors.New("not the URL of a database " + want)
	case target.Hostname() == "":
		return nil, "", errors.New("the URL names no host: " + want)
	case strings.Trim(target.Path, "/") == "" || strings.Contains(target.Path[1:], "/"):
		return nil, "", errors.New("the URL names no database: " + want)
	}
	return target, dialect, nil
}

// RedactSQL is a database's URL without its password, and without the values of its parameters.
func RedactSQL(text string) string {
	target, _, err := ParseSQL(text)
	if err != nil {
		if text == "" {
			return ""
		}
		return "***"
	}
	shown := target.Scheme + "://"
	if target.User != nil {
		shown += target.User.Username()
		if _, secret := target.User.Password(); secret {
			shown += ":***"
		}
		shown += "@"
	}
	shown += target.Host + target.Path
	if target.RawQuery != "" { // there may be one there
		shown += "?***"
	}
	return shown
}

// DatabaseURL is a setting that names a database.
func DatabaseURL(name, help string, into *string) *Setting {
	return Redacted(Checked(name, "URL", help, func(s string) error {
		_, _, err := ParseSQL(s)
		return err
	}, into), RedactSQL)
}
