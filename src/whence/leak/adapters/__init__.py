"""What an audit can be pointed at: one file for each kind of model."""
