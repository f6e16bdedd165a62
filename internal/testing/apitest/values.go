package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// check compares a value, as jsonschema.UnmarshalJSON gives it, with the schema.
func (v *value) check(found any) error {
	schema, err := v.set.at(v.at)
	if err != nil {
		return err
	}
	return schema.Validate(found)
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// checkText compares what stands in a path, a query or a header, where a number is text as well,
// and so is true or false.
func (v *value) checkText(text string) error {
	switch {
	case v.schema.Type.Is("integer") && wholeNumber.MatchString(text):
		return v.check(json.Number(text))
	case v.schema.Type.Is("boolean") && (text == "true" || text == "false"):
		return v.check(text == "true")
	}
	return v.check(text)
}

// checkBody compares a body of a media type: JSON by its members, everything else as text.
func (v *value) checkBody(media string, text []byte) error {
	if !isJSON(media) {
		return v.check(string(text))
	}
	found, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return v.check(found)
}

func isJSON(media string) bool {
	kind, _, err := mime.ParseMediaType(media)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}
