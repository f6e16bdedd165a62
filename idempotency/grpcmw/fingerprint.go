package grpcmw

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fingerprint is of the method and of the message in canonical form.
func fingerprint(method string, message any) (string, error) {
	known, is := message.(proto.Message)
	if !is {
		return "", fmt.Errorf("the request is a %T and no protobuf message, so it cannot be guarded", message)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(known)
	if err == nil {
		text, err = canonical(text, known.ProtoReflect().Descriptor())
	}
	if err != nil {
		return "", fmt.Errorf("the request cannot be written: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s,%s", len(method), method, text))
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// canonical orders the fields of a message, and of those within it, by their numbers: those that
// this program does not know stand at the end, until the next version of it knows them.
func canonical(message []byte, of protoreflect.MessageDescriptor) ([]byte, error) {
	type field struct {
		number protowire.Number
		text   []byte // with its tag
	}
	var fields []field
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		text := message[:tag+size]
		if inner := of.Fields().ByNumber(number); inner != nil && inner.Message() != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[tag:])
			ordered, err := canonical(value, inner.Message())
			if err != nil {
				return nil, err
			}
			text = protowire.AppendBytes(slices.Clone(message[:tag]), ordered)
		}
		fields = append(fields, field{number, text})
		message = message[tag+size:]
	}
	slices.SortStableFunc(fields, func(a, b field) int { return int(a.number - b.number) })
	var text bytes.Buffer
	for _, one := range fields {
		text.Write(one.text)
	}
	return text.Bytes(), nil
}
