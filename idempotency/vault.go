package idempotency

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"

	"github.com/coatcheck/coatcheck/redisstore"
)

// vault writes answers as they are stored, encrypted where there are keys: AES-256 in Galois/counter mode (NIST SP 800-38D) with a random nonce of 96 bits,
// which is good for 2^32 answers a key. The record's name is authenticated with it, so that an answer can not be moved to another token. The zero value
// stores answers as they are. It is safe for concurrent use.
type vault struct {
	newest string // the key that encrypts; "" = none
	keys   map[string]cipher.AEAD
}

func newVault(keys []Key) vault {
	if err := checkKeys(keys); err != nil {
		panic(fmt.Errorf("idempotency: answer keys: %w", err))
	}
	v := vault{keys: map[string]cipher.AEAD{}}
	for i, key := range keys {
		block, err := aes.NewCipher(key.Secret)
		if err != nil {
			panic(err) // the length is right
		}
		if v.keys[key.ID], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			panic(err) // AES has the block size that it takes
		}
		if i == 0 {
			v.newest = key.ID
		}
	}
	return v
}

// envelope is the first line of an encrypted answer; what is encrypted follows.
type envelope struct {
	Version int    `json:"v"`
	Key     string `json:"key"`
}

const sealedVersion = 2

// seal returns an answer as it is stored in a record.
func (v vault) seal(record string, answer Answer) []byte {
	plain := answer.encode()
	if v.newest == "" {
		return plain
	}
	line, err := json.Marshal(envelope{Version: sealedVersion, Key: v.newest})
	if err != nil {
		panic(err) // a number and a string always marshal
	}
	return v.keys[v.newest].Seal(append(line, '\n'), nil, plain, []byte(record)) //nolint:gosec // the cipher makes a nonce itself, and takes none
}

// open reads a stored answer. One that was stored before there were keys is read as it is; one under an unknown key, or that was changed, is not readable:
// nothing is replayed and nothing runs.
func (v vault) open(record string, stored []byte) (Answer, error) {
	line, sealed, _ := bytes.Cut(stored, []byte{'\n'})
	var e envelope
	if err := json.Unmarshal(line, &e); err != nil || e.Version != sealedVersion {
		return decodeAnswer(stored)
	}
	key, known := v.keys[e.Key]
	if !known {
		return Answer{}, fmt.Errorf("%w: the stored answer is encrypted with a key that is not here", redisstore.ErrUnavailable)
	}
	plain, err := key.Open(nil, nil, sealed, []byte(record))
	if err != nil {
		return Answer{}, fmt.Errorf("%w: the stored answer can not be decrypted", redisstore.ErrUnavailable)
	}
	return decodeAnswer(plain)
}
