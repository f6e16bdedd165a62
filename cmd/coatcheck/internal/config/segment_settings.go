package config

import (
	"fmt"
	"strings"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/server"
)

// SegmentsFromRedis is the source of segments that are counters of the store.
const SegmentsFromRedis = "redis"

func segmentSource(into *string) *Setting {
	help := "where the ranges of /id/segment come from: redis, which is counters of the store, or a database, with the table that " +
		"--segment-table names: mysql:// | postgres://"
	redact := func(s string) string {
		if s == SegmentsFromRedis {
			return s
		}
		return RedactSQL(s)
	}
	return &Setting{Name: "segment-source", Value: SegmentsFromRedis, Unit: "redis or URL", Help: help, Redact: redact,
		Parse: func(s string) error {
			*into = s
			if s == SegmentsFromRedis {
				return nil
			}
			if _, _, err := ParseSQL(s); err != nil {
				return fmt.Errorf("neither redis nor a database: %w", err)
			}
			return nil
		}}
}

// segmentCreate is the treatment of a tag that the store's counters do not have.
func segmentCreate(known *bool) *Setting {
	var create bool
	s := Toggled("segment-create", "true", "a tag that Redis does not have begins at 1; false: it is not found", &create)
	parse := s.Parse
	s.Parse = func(text string) error {
		err := parse(text)
		*known = !create
		return err
	}
	return s
}

// leafModes are the active modes of the door for Leaf's clients.
func leafModes(into *server.LeafDoor) *Setting {
	help := "modes of the door for clients of Leaf that are on: segment, snowflake, or both with a comma between them; one that is " +
		"off answers 0; empty: there is no such door"
	return &Setting{Name: "leaf", Unit: "mode,…", Help: help, Parse: func(s string) error {
		into.NoSegment, into.NoSnowflake = true, true
		if s == "" {
			return nil
		}
		for mode := range strings.SplitSeq(s, ",") {
			switch strings.TrimSpace(mode) {
			case "segment":
				into.NoSegment = false
			case "snowflake":
				into.NoSnowflake = false
			default:
				return fmt.Errorf("%q is not a mode: segment, snowflake, or both with a comma between them", mode)
			}
		}
		return nil
	}}
}

// tinyidTokens are the tokens of the door for tinyid's clients. Only their tags are ever shown.
func tinyidTokens(into *[]server.TinyidToken) *Setting {
	const help = "tokens of the API for clients of tinyid: each gives ids of its tag; a tag may have several; none: the door answers " +
		"all that the token is wrong"
	return secrets("tinyid-tokens", "tag=token,…", help, "(not tokens)", parseTinyid,
		func(token server.TinyidToken) string { return token.BizType + "=…" }, into)
}

func parseTinyid(text string) (tokens []server.TinyidToken, err error) {
	if text == "" {
		return nil, nil
	}
	for i, part := range strings.Split(text, ",") {
		tag, token, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !names.Valid(tag) || token == "" {
			return nil, fmt.Errorf("token %d: tag=token, the tag a name, the token at least one character and no comma", i+1)
		}
		tokens = append(tokens, server.TinyidToken{BizType: tag, Token: token})
	}
	return tokens, nil
}
