package hub

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
)

// The layout of a block file, from nats-server v2.15.2 server/filestore.go
// (msgHdrSize, recordHashSize, hbit, hashKeyForBlock, rebuildStateFromBufLocked).
// A record is length uint32, sequence uint64, time int64, subject length uint16,
// subject, [header length uint32 and header if the length has headerBit], body,
// checksum; little endian, the length over all of it.
const (
	recordHeadBytes = 22
	recordHashBytes = 8
	headerBit       = 1 << 31
)

// verifyBlocks reads the blocks of a stream before the server does, because the
// server cuts a block off at its first damaged record and says nothing. It
// reports ErrCorrupt if an intact record follows a damaged one, or if the damaged
// end is not one record whose writing was cut. Such an end is
// what a power cut in the middle of a write leaves; nobody was told that it was
// stored, so its length is returned and the server may cut it off.
func verifyBlocks(stream, dir string) (cutBytes int, err error) {
	blocks, err := listBlocks(dir)
	if err != nil {
		return 0, fmt.Errorf("read store: %w", err)
	}
	damagedIn := ""
	for _, b := range blocks {
		buf, err := os.ReadFile(b.path)
		if err != nil {
			return 0, fmt.Errorf("read store: %w", err)
		}
		key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, b.index))
		h, err := highwayhash.New64(key[:])
		if err != nil {
			return 0, fmt.Errorf("read store: %w", err)
		}
		good := intactBytes(h, buf)
		if damagedIn != "" && good > 0 {
			return 0, corrupt(stream, dir, damagedIn)
		}
		if good == len(buf) {
			continue
		}
		damagedIn = fmt.Sprintf("%s at byte %d", b.path, good)
		if !torn(buf[good:]) {
			return 0, corrupt(stream, dir, damagedIn)
		}
		cutBytes += len(buf) - good
		for at := good + 1; at < len(buf); at++ {
			if recordBytes(h, buf[at:]) > 0 {
				return 0, corrupt(stream, dir, damagedIn)
			}
		}
	}
	return cutBytes, nil
}

// torn reports whether rest can be one record whose writing was cut: less than a
// head, a record that claims more than is there and no more than a record may
// have, or the zeros of space that was reserved and never written.
func torn(rest []byte) bool {
	if len(rest) < recordHeadBytes || len(bytes.TrimLeft(rest, "\x00")) == 0 {
		return true
	}
	total := int(binary.LittleEndian.Uint32(rest) &^ headerBit)
	return total > len(rest) && total <= maxRecordBytes
}

// maxRecordBytes is chosen: the largest body, and room for subject and headers.
const maxRecordBytes = maxPayloadBytes + 64<<10

func corrupt(stream, dir, where string) error {
	return fmt.Errorf("%w: stream %s: %s is unreadable, and more than a record torn at the end; nothing was changed: "+
		"restore %s from a backup, or move it away to start without its contents", ErrCorrupt, stream, where, filepath.Dir(dir))
}

type block struct {
	index int
	path  string
}

// listBlocks returns a stream's block files, oldest first.
func listBlocks(dir string) ([]block, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var blocks []block
	for _, e := range entries {
		name, isBlock := strings.CutSuffix(e.Name(), ".blk")
		if index, err := strconv.Atoi(name); isBlock && err == nil {
			blocks = append(blocks, block{index, filepath.Join(dir, e.Name())})
		}
	}
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Compare(a.index, b.index) })
	return blocks, nil
}

// intactBytes returns where the first damaged record begins, or len(buf).
func intactBytes(h hash.Hash64, buf []byte) int {
	at := 0
	for at < len(buf) {
		n := recordBytes(h, buf[at:])
		if n == 0 {
			break
		}
		at += n
	}
	return at
}

// recordBytes returns the length of the record buf begins with, or 0 if it is
// not an intact one.
func recordBytes(h hash.Hash64, buf []byte) int {
	if len(buf) < recordHeadBytes+recordHashBytes {
		return 0
	}
	length := binary.LittleEndian.Uint32(buf)
	subject := int(binary.LittleEndian.Uint16(buf[20:]))
	total := int(length &^ headerBit)
	body := recordHeadBytes + subject
	if length&headerBit != 0 {
		body += 4 // the header's length is not part of the checksum
	}
	if total > len(buf) || body > total-recordHashBytes {
		return 0
	}
	h.Reset()
	h.Write(buf[4:20])
	h.Write(buf[recordHeadBytes : recordHeadBytes+subject])
	h.Write(buf[body : total-recordHashBytes])
	if !bytes.Equal(h.Sum(nil), buf[total-recordHashBytes:total]) {
		return 0
	}
	return total
}
