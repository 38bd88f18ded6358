package store

// expiryOrder is a heap (container/heap) of entries, the one that expires first on top.
type expiryOrder []*memoryEntry

// Len is heap.Interface's.
func (o expiryOrder) Len() int { return len(o) }

// Less is heap.Interface's.
func (o expiryOrder) Less(i, j int) bool { return o[i].expiry < o[j].expiry }

// Swap is heap.Interface's.
func (o expiryOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].heapIndex, o[j].heapIndex = i, j
}

// Push is heap.Interface's.
func (o *expiryOrder) Push(x any) {
	e := x.(*memoryEntry)
	e.heapIndex = len(*o)
	*o = append(*o, e)
}

// Pop is heap.Interface's.
func (o *expiryOrder) Pop() any {
	last := len(*o) - 1
	e := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return e
}
