//! Recovery of a transaction: repeats calls whose results were lost, or gives them up.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Access, Graph, GraphError, Node, State};

impl Graph {
    /// Restarts a call that runs or has ended: its results are lost, or its attempt failed. It waits for open calls before it,
    /// and calls after it that have not started wait for it. So the calls whose results it reads may be restarted earlier or
    /// later.
    ///
    /// # Errors
    /// The call neither runs nor has ended.
    pub fn restart(&mut self, node: Node) -> Result<(), GraphError> {
        let was = self.state(node).cloned().ok_or(GraphError::NotNow(node))?;
        if !matches!(was, State::Running | State::Done(_)) {
            return Err(GraphError::NotNow(node));
        }
        let before: Vec<Node> = self.after(node).map(|(other, _)| other).collect();
        let mut open = 0;
        for other in before {
            if let Some(vertex) = self.vertices.get_mut(other.0 as usize)
                && vertex.is_open()
            {
                vertex.before.push(node);
                open += 1;
            }
        }
        if let Some(vertex) = self.vertices.get_mut(node.0 as usize) {
            vertex.open = open;
            vertex.state = if open == 0 { State::Ready } else { State::Waiting };
        }
        // Calls that wait for a running call still wait for it.
        if matches!(was, State::Done(_)) {
            self.hold_back(node);
        }
        Ok(())
    }

    /// Makes calls after this one wait for it if they have not started, also those after skipped calls.
    fn hold_back(&mut self, node: Node) {
        let mut held = Vec::from([node]);
        while let Some(node) = held.pop() {
            let behind = |&other: &Node| {
                let depends = self.after(other).any(|(before, _)| before == node);
                let state = self.state(other);
                depends && matches!(state, Some(State::Waiting | State::Ready | State::Skipped(_)))
            };
            let waiting: Vec<Node> =
                self.nodes().skip(node.0 as usize + 1).filter(behind).collect();
            for &other in &waiting {
                let Some(vertex) = self.vertices.get_mut(other.0 as usize) else { continue };
                vertex.open += 1;
                if !matches!(vertex.state, State::Skipped(_)) {
                    vertex.state = State::Waiting;
                } else if vertex.open == 1 {
                    held.push(other);
                }
            }
            if let Some(vertex) = self.vertices.get_mut(node.0 as usize) {
                vertex.before.extend(waiting);
            }
        }
    }

    /// Marks the results of an ended call as lost for good. Calls that would have read them are skipped. Returns the calls that
    /// are ready now.
    ///
    /// # Errors
    /// The call has not ended.
    pub fn mark_lost(&mut self, node: Node, why: String) -> Result<Vec<Node>, GraphError> {
        let vertex = self.vertices.get_mut(node.0 as usize);
        let vertex = vertex.filter(|vertex| matches!(vertex.state, State::Done(_)));
        vertex.ok_or(GraphError::NotNow(node))?.state = State::Failed(why);
        let mut ready = self.skip_readers(node);
        ready.retain(|&node| self.state(node) == Some(&State::Ready));
        Ok(ready)
    }

    /// The last writer of each byte, whether it has run or not.
    #[must_use]
    pub fn last_writers(&self) -> Vec<(Access, Node)> {
        let mut found = Vec::new();
        for (&buffer, ranges) in &self.buffers {
            let parts = ranges.results();
            found.extend(parts.map(|(start, end, node)| (Access { buffer, start, end }, node)));
        }
        found
    }
}
