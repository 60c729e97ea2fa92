;; It listens to calls of its own tool, and may have one call under way: its tool finds no place.
;; world: export dsh:tools/execute@0.1.0;
;; world: export dsh:tools/provider@0.1.0;
;; limit: leases 1
;; fails: tools/provider limit: it has as many calls under way as the limit `leases` of 1
;; always: the listener waits for the tool in each call
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (call $passed (call $rest (local.get $args))))
(func (export "dsh:tools/provider@0.1.0#call-tool") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (call $ok))
