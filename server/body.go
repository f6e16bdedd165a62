package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
)

// body reads a JSON object into a struct, strictly: fields by their exact names and once each,
// UTF-8, and nothing after the object. An empty body leaves the struct as it is; so does a field
// that is null.
func (r *request) body(into any) {
	if r.err == nil && r.Request().Body != http.NoBody {
		r.fail(readBody(r.Request().Body, into))
	}
}

func readBody(from io.Reader, into any) error {
	text, err := io.ReadAll(from)
	switch {
	case err != nil:
		return unread(err)
	case len(bytes.TrimSpace(text)) == 0:
		return nil
	case !utf8.Valid(text):
		return invalid("body", "not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if first, err := decoder.Token(); err != nil {
		return malformed(err)
	} else if first != json.Delim('{') {
		return invalid("body", "not a JSON object")
	}
	if err := members(text, decoder, fields(into)); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("body", "one JSON object belongs here, and nothing after it")
	}
	return nil
}

// members reads an object's members up to its closing brace, each into its field.
func members(text []byte, decoder *json.Decoder, targets map[string]any) error {
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return malformed(err)
		}
		name, _ := token.(string) // the decoder takes nothing else for a name
		target, known := targets[name]
		switch {
		case !known:
			return invalid(names.Printable(name), "unknown field")
		case seen[name]:
			return invalid(name, "given more than once")
		}
		seen[name] = true
		from := decoder.InputOffset()
		if err := decoder.Decode(target); err != nil {
			return wrongValue(name, target, err)
		}
		if value := bytes.TrimLeft(text[from:decoder.InputOffset()], ": \t\r\n"); !isText(value) {
			return invalid(name, "half of a surrogate pair, which is no text")
		}
	}
	if _, err := decoder.Token(); err != nil {
		return malformed(err)
	}
	return nil
}

// isText reports whether each string of a JSON value can be written in UTF-8. encoding/json takes
// every half of a surrogate pair for the same character, so that two keys would be one.
func isText(value jsontext.Value) bool {
	return value.IsValid(jsontext.AllowDuplicateNames(true))
}

// fields maps JSON names to the fields of a struct.
func fields(into any) map[string]any {
	value := reflect.ValueOf(into).Elem()
	targets := map[string]any{}
	for i := range value.NumField() {
		if value.Type().Field(i).Anonymous {
			maps.Copy(targets, fields(value.Field(i).Addr().Interface()))
			continue
		}
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		targets[name] = value.Field(i).Addr().Interface()
	}
	return targets
}

// unread is the error for a body that could not be read to its end: it is too large, there is no
// memory for it, or the client stopped sending.
func unread(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if errors.Is(err, frontdoor.ErrOverloaded) {
		return err
	}
	return invalid("body", "it did not arrive whole")
}

func malformed(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return invalid("body", "not one JSON object: "+strings.TrimPrefix(err.Error(), "json: "))
}

// wrongValue names the kind of value that a field takes.
func wrongValue(name string, target any, err error) error {
	if _, is := errors.AsType[*json.SyntaxError](err); is || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return malformed(err)
	}
	switch target.(type) {
	case **api.Time:
		return invalid(name, "a time is RFC 3339, such as 2020-01-01T00:00:00Z")
	case *[]byte:
		return invalid(name, "not base64 with padding")
	}
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid(name, "not a "+jsonName(wrongType.Type.Kind().String()))
	}
	return invalid(name, "not as it should be")
}

// jsonName is JSON's name for a Go kind.
func jsonName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"):
		return "whole number within 64 bits"
	case kind == "struct", kind == "map":
		return "JSON object"
	}
	return kind
}
